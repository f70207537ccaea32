"""A load balancer at the socket, in a few lines of BPF: what Cilium has in kube-proxy's place.

It is attached to a control group of its own, which the test's process enters: it holds for what is started
then (clients, nodeagent, the relay), whatever network that is in, and for nothing else on the machine.
"""

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.testbed.errors import WorldError
from tests.testbed.namespaces import Host
from tests.testbed.services import ServiceRules

_SOURCE = Path(__file__).with_suffix(".c")
# $1 is the program, $2 the control group. The pin ends with the mount namespace; the attachment stays.
_ATTACH = """
set -eu
mount -t bpf bpf /sys/fs/bpf
bpftool prog load "$1" /sys/fs/bpf/rewrite
bpftool cgroup attach "$2" connect4 pinned /sys/fs/bpf/rewrite
"""


@contextmanager
def socket_balancer(node: Host, service: ServiceRules, directory: Path) -> Iterator[None]:
    """Rewrite connect() to a Service's IPv4 addresses, for what this process starts as long as this lasts.

    Args:
        node: Where Cilium's recognizable trace is: its pins in /sys/fs/bpf.
        service: Its ClusterIP and its load balancer's address lead to its first pod.
        directory: For the program.
    """
    program = directory / "socket_balancer.o"
    _run(
        *("clang", "-O2", "-g", "-target", "bpf", f"-I/usr/include/{platform.machine()}-linux-gnu"),
        *(f"-DTRANSLATIONS={_translations(service)}", "-c", str(_SOURCE), "-o", str(program)),
    )
    parent = _own_group()
    group = parent / f"nodeagent-test-{os.getpid()}"
    with ExitStack() as stack:
        group.mkdir()
        stack.callback(group.rmdir)  # what is attached goes with it
        _run("unshare", "--mount", "sh", "-c", _ATTACH, "sh", str(program), str(group))
        stack.callback(_move, group, parent)
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
        node.run(["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"])
        stack.callback(node.run, ["umount", "/sys/fs/bpf"])
        node.run(["mkdir", "-p", "/sys/fs/bpf/cilium/socketlb"])
        yield


def _translations(service: ServiceRules) -> str:
    backend = next(address for address in service.endpoints if address.version == 4)
    fronts = [each for each in (*service.cluster_ips, *service.load_balancer_ips) if each.version == 4]
    return ",".join(
        f"{{{int(front)}u,{port.port},{int(backend)}u,{port.target_port}}}"
        for front in fronts
        for port in service.ports
    )


def _own_group() -> Path:
    """Return the control group (version 2) of this process."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines()]
    unified = next((words[4] for words in mounts if words[words.index("-") + 1] == "cgroup2"), None)
    if unified is None:
        raise WorldError("no cgroup2 is mounted: there is nothing to attach a program of BPF to")
    own = Path("/proc/self/cgroup").read_text("ascii")
    (path,) = [line.removeprefix("0::") for line in own.splitlines() if line.startswith("0::")]
    return Path(unified, path.lstrip("/"))


def _move(group: Path, parent: Path) -> None:
    """Move all processes of a control group into its parent, this one among them."""
    for pid in (group / "cgroup.procs").read_text("ascii").split():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            (parent / "cgroup.procs").write_text(pid, encoding="ascii")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise WorldError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
