"""A fork server: starts Python programs in a host without the time that their imports take.

A start of `python -P -m nodeagent` needs 0.3 to 0.5 s of CPU time, most of it for imports. So each test
process has one server, a Python of a single thread that has imported nodeagent. It forks twice for each
start: the first child enters the host's namespaces as `nsenter` does and waits; the second runs the module as
`python -m` does. `Host.run` and `Host.popen` use the server if they are called with `forked=True`. Its
programs differ from real starts in /proc/PID/cmdline and environ, in that modules are imported already, and
in that an end with an exit code leaves their memory to the kernel.
"""

import atexit
import ctypes
import gc
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType

import nodeagent
from tests.testbed.inside import enter_host

# What nodeagent imports when it needs it; without the official client, which few starts need and which would
# make each fork slower.
_IMPORTED_LATER = ("iptc", "prometheus_client", "pyroute2", "watchdog.observers.inotify_c")
_LONGEST_REQUEST = 65536
_STREAMS = ("stdin", "stdout", "stderr")


def _import_all() -> None:
    """Import what nodeagent's commands import; objects of now are spared by the children's collections."""
    for module in pkgutil.walk_packages(nodeagent.__path__, "nodeagent."):
        if not module.name.endswith(".__main__"):
            import_module(module.name)
    path = list(sys.path)
    for name in _IMPORTED_LATER:
        import_module(name)
    sys.path[:] = path  # iptc imports setuptools, which adds to it
    gc.freeze()


def _end(codes: list[int], modules: dict[str, ModuleType]) -> None:
    """End at once, after the program's threads and exit handlers, if the program has an exit code.

    The interpreter would free all objects one by one. For those that a child shares with the server, that
    would copy each page of memory. If the regular end is needed, the server's modules are taken out of it.
    """
    if codes:
        # Otherwise the interpreter reports it.
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(codes[0])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(modules))
    for name in modules.keys() - {"sys", "builtins"}:
        sys.modules.pop(name, None)


def _main() -> None:
    """Serve until the test process has ended; in a child, run its program and return."""
    codes: list[int] = []
    modules: dict[str, ModuleType] = {}
    atexit.register(_end, codes, modules)  # what is registered first is called last
    _import_all()
    modules.update(sys.modules)
    # The kernel reaps the children: each reports its program's end itself.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    channel = socket.socket(fileno=0)
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, _LONGEST_REQUEST, 5)
        if not request:
            return
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    channel.detach()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    start = json.loads(request)
    host, *streams, replying = descriptors
    reply = socket.socket(fileno=replying)
    enter_host(host)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for descriptor in (host, *streams):
        os.close(descriptor)
    program = os.fork()
    if program:
        os.closerange(0, len(_STREAMS))
        reply.send(b"%d" % program)
        ended = os.waitid(os.P_PID, program, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        reply.send(b"%d" % (ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status))
        # Until the test process knows, no other process can get the program's id.
        reply.recv(1)
        os.waitpid(program, 0)
        os._exit(0)
    if start["session"]:
        os.setsid()
    reply.close()
    os.environ.clear()
    os.environ.update(start["env"])
    for number, name in enumerate(_STREAMS):
        old = getattr(sys, name)
        stream = open(number, old.mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115 - as Python itself opens them
        stream.reconfigure(line_buffering=old.line_buffering)
        stream.buffer.raw.name = old.name
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    module, *sys.argv[1:] = start["args"]
    _run(module, codes)


def _run(module: str, codes: list[int]) -> None:
    """Run a module as `python -m` does, and add its exit code, unless the interpreter must explain it."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        codes.append(0)
    except SystemExit as end:
        if isinstance(end.code, int) and end.code in range(256):
            codes.append(end.code)
        raise


if __name__ == "__main__":
    _main()
