"""A program that reports how it was started or stays, for test_forkserver.py."""

import ctypes
import faulthandler
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import urllib3  # noqa: F401 - it filters warnings; the fork server has imported it

_PR_GET_PDEATHSIG = 2
_COUNTED = (
    "Threads",
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "Cap",
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "Seccomp",
    "NoNewPrivs",
)


def beginning() -> dict[str, Any]:
    """Return all that a program may inherit from what started it, or from the interpreter it runs in."""
    death_signal = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(death_signal))
    status = Path("/proc/self/status").read_text("ascii").splitlines()
    streams = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    return {
        "arguments": sys.argv,
        "variables": dict(os.environ),
        "variables of a child": subprocess.run(["env"], capture_output=True, text=True, check=True).stdout,
        "directories": [str(Path.cwd()), str(Path("/proc/self/root").readlink())],
        "process": [line for line in status if line.startswith(_COUNTED)],
        "limits": Path("/proc/self/limits").read_text("ascii"),
        "priorities": [os.nice(0), Path("/proc/self/oom_score_adj").read_text("ascii")],
        "dies with its parent": death_signal.value,
        "parent, group, session": [
            "itself" if each == os.getpid() else each for each in (os.getppid(), os.getpgrp(), os.getsid(0))
        ],
        "namespaces": {
            link.name: str(link.readlink())
            for link in Path("/proc/self/ns").iterdir()
            if not link.name.endswith("_for_children")
        },
        "descriptors": sorted(os.listdir("/proc/self/fd")),  # noqa: PTH208 - pathlib would be no shorter
        "streams": [[s.encoding, s.errors, s.line_buffering, s.mode, s.isatty()] for s in streams if s],
        "to read": sys.stdin.read(),
        "handlers": {number: str(signal.getsignal(number)) for number in signal.valid_signals()},
        "interpreter": [sys.path, list(sys.flags), sys.warnoptions, repr(warnings.filters)],
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_debug()],
        "log": [repr(logging.root), repr(logging.root.handlers), repr(logging.getLogger("nodeagent"))],
        "threads": [thread.name for thread in threading.enumerate()],
        "faulthandler": faulthandler.is_enabled(),
        "name": [__name__, sys.modules["__main__"].__dict__ is globals()],
    }


def stay() -> None:
    """Stay until a signal comes; SIGUSR1 ends it with 7."""
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
    print("stays", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    if sys.argv[1:] == ["stay"]:
        stay()
    else:
        print(json.dumps(beginning()))
