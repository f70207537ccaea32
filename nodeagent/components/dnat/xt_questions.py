"""Queries to the kernel about legacy xtables without python-iptables. EFFECTS: reads only.

The query whether anything of nodeagent's exists is so cheap that every pass of the nftables backend can make
it, too: python-iptables takes 13 MB and 0.2 s to import, and CAP_NET_RAW for libiptc's raw socket. The query
also leaves no trace: naming a table to the kernel creates it (xt_find_table_lock()), and `iptables-save`
shows it from then on; so /proc is read first.
"""

import ctypes
import errno
import os
import socket
import struct
from pathlib import Path
from typing import Final

from nodeagent.components.dnat.xt_layout import PREFIX, TABLES, TableName
from nodeagent.model.addresses import Family

# include/uapi/linux/netfilter_ipv4/ip_tables.h and netfilter_ipv6/ip6_tables.h: the same numbers in both.
_GET_INFO, _GET_ENTRIES = 64, 65
_GET_REVISION_TARGET: Final[dict[Family, int]] = {4: 67, 6: 69}
_REVISION = struct.Struct("@29sB")
_INFO = struct.Struct("@32s12I")  # name, valid_hooks, hook_entry[5], underflow[5], num_entries; then size
_GET = struct.Struct("@32sI4x")  # name, size; the entries follow, aligned to 8

_NAMES: Final[dict[Family, str]] = {4: "ip_tables_names", 6: "ip6_tables_names"}
_SOCKETS: Final[dict[Family, tuple[int, int]]] = {
    4: (socket.AF_INET, socket.IPPROTO_IP),
    6: (socket.AF_INET6, socket.IPPROTO_IPV6),
}

_libc = ctypes.CDLL(None, use_errno=True)


def existing_tables(family: Family) -> frozenset[str]:
    """Return the names of the family's legacy tables in this network namespace.

    None without the kernel's module.

    Raises:
        PermissionError: only root may read that.
    """
    # thread-self: /proc/net is that of the process's first thread, in whatever namespace that is.
    try:
        text = Path("/proc/thread-self/net", _NAMES[family]).read_text(encoding="ascii")
    except FileNotFoundError:
        return frozenset()
    return frozenset(text.split())


def tables_with_ours(family: Family) -> tuple[TableName, ...]:
    """Return the tables that have one of nodeagent's chains.

    Raises:
        PermissionError: it needs CAP_NET_ADMIN.
        OSError: the kernel does not answer.
    """
    existing = existing_tables(family)
    return tuple(table for table in TABLES if table in existing and _holds_ours(family, table))


def missing_table(family: Family, table: TableName) -> str:
    """Return what the family's table lacks, for a person; empty if the table exists, or if that is unknown.

    Unlike the other queries, this one creates the table, if the kernel can.
    """
    kind, level = _SOCKETS[family]
    program = "iptables" if family == 4 else "ip6tables"
    try:
        with socket.socket(kind, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
            _get(control, level, _GET_INFO, _INFO.pack(table.encode("ascii"), *([0] * 12)) + bytes(4))
    except OSError as error:
        if is_denied(error):
            return ""
        return (
            f"the kernel has no legacy table {table} of {program} ({error.strerror}): modprobe ip"
            f"{'6' if family == 6 else ''}table_{table} on the host"
        )
    return ""


def knows_target(family: Family, name: str, revision: int) -> bool:
    """Whether the kernel has this revision of a target, as libxtables asks it (compatible_revision()).

    Raises:
        OSError: the kernel does not answer, or requires CAP_NET_ADMIN.
    """
    kind, level = _SOCKETS[family]
    with socket.socket(kind, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        question = _REVISION.pack(name.encode("ascii"), revision)
        try:
            _get(control, level, _GET_REVISION_TARGET[family], question)
        except OSError as error:
            if error.errno in (errno.EPROTONOSUPPORT, errno.ENOENT, errno.ENOPROTOOPT):
                return False
            raise
        return True


def _holds_ours(family: Family, table: TableName) -> bool:
    kind, level = _SOCKETS[family]
    name = table.encode("ascii")
    with socket.socket(kind, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        while True:
            try:
                info = _get(control, level, _GET_INFO, _INFO.pack(name, *([0] * 12)) + bytes(4))
                size = struct.unpack_from("@I", info, _INFO.size)[0]
                entries = _get(control, level, _GET_ENTRIES, _GET.pack(name, size) + bytes(size))
            except BlockingIOError:
                continue  # the table has changed between the two queries
            # A chain's head has its name (xt_error_target).
            return PREFIX.encode("ascii") in entries


def _get(control: socket.socket, level: int, option: int, question: bytes) -> bytes:
    """Call getsockopt(2) with a buffer that says what is requested; Python's own passes none."""
    buffer = ctypes.create_string_buffer(question, len(question))
    length = ctypes.c_uint32(len(question))
    if _libc.getsockopt(control.fileno(), level, option, buffer, ctypes.byref(length)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return buffer.raw


def is_denied(error: OSError) -> bool:
    """Whether the kernel requires a privilege that this process lacks."""
    return error.errno in (errno.EPERM, errno.EACCES)
