"""A kernel without some of its modules: system calls answer as they do there (seccomp(2)).

Only for a process of its own: it keeps the filter for life, and so does every program that it starts.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
# BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBERS: Final = {
    "x86_64": {"socket": 41, "getsockopt": 55},
    "aarch64": {"socket": 198, "getsockopt": 209},
}


@dataclass(frozen=True)
class Refusal:
    """A system call whose arguments (by place) are these fails with an error number."""

    call: str
    arguments: dict[int, int]
    error: int


# Level and option (IPT_SO_GET_INFO) of libiptc's first question, and what kernels answer without the module.
NO_IPTABLES = Refusal("getsockopt", {1: 0, 2: 64}, errno.ENOPROTOOPT)
NO_IP6TABLES = Refusal("getsockopt", {1: 41, 2: 64}, errno.ENOENT)
# AF_NETLINK, NETLINK_NETFILTER: without nfnetlink and nf_tables.
NO_NF_TABLES = Refusal("socket", {0: 16, 2: 12}, errno.EPROTONOSUPPORT)
# AF_INET6, on a kernel that was booted with ipv6.disable=1.
NO_IPV6 = Refusal("socket", {0: 10}, errno.EAFNOSUPPORT)


def refuse(*refusals: Refusal) -> None:
    """From now on these calls fail, in this process and all that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = b"".join(struct.pack("=HBBI", *step) for step in _filter(refusals))
    buffer = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    for option, value, pointer in ((_PR_SET_NO_NEW_PRIVS, 1, None), (_PR_SET_SECCOMP, _MODE_FILTER, head)):
        if libc.prctl(option, value, pointer, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def _filter(refusals: Sequence[Refusal]) -> list[tuple[int, int, int, int]]:
    """Steps: operation, jump if so, jump if not, value; the call is at 0 of the data, arguments from 16."""
    numbers = _NUMBERS[platform.machine()]
    steps: list[tuple[int, int, int, int]] = []
    for refusal in refusals:
        conditions = [(0, numbers[refusal.call])]
        conditions += [(16 + 8 * place, value) for place, value in refusal.arguments.items()]
        for number, (offset, value) in enumerate(conditions):
            left = 2 * (len(conditions) - number - 1) + 1
            steps += [(_LOAD, 0, 0, offset), (_IF_EQUAL, 0, left, value)]
        steps.append((_RETURN, 0, 0, _ERRNO | refusal.error))
    return [*steps, (_RETURN, 0, 0, _ALLOW)]
