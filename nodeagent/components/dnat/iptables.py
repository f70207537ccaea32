"""The iptables backend: nodeagent's chains in the legacy tables nat and mangle, and no others. Effects.

Whether the tables hold anything of nodeagent's is asked without python-iptables, which takes 13 MB and 0.2 s
to import: the nftables backend asks it, too. To name a table to the kernel creates it (xt_find_table_lock()),
so /proc is read first.
"""

import ctypes
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nodeagent.components.dnat.state import DnatChange, DnatState
from nodeagent.components.dnat.xt_layout import (
    PREFIX,
    PROGRAMS,
    TABLES,
    Key,
    Table,
    TableName,
    XtState,
    layout,
    state_of,
)
from nodeagent.components.dnat.xt_layout import compared as xt_compared
from nodeagent.components.dnat.xt_layout import script as xt_script
from nodeagent.components.dnat.xt_tables import XtMissingError, XtTable, lock_path, xtables_lock
from nodeagent.errors import ApplyError
from nodeagent.linux.inotify import CLOSE_NOWRITE, CLOSE_WRITE, FileEvents
from nodeagent.model.addresses import FAMILIES, Family
from nodeagent.model.desired import DnatRules

_LOOK_SECONDS = 10.0
_REST_SECONDS = 0.3
"""Between two looks, however often programs take the lock: large tables take tens of milliseconds to read."""


class XtablesWatch(FileEvents):
    """Implements `component.Watch`: when a program has held the lock, and every ten seconds.

    The kernel reports no change of a legacy table, but iptables, iptables-restore and with them kube-proxy
    open the lock file before they change one and close it afterwards. Once it is `outdated`, since another
    backend is in use, it is broken.
    """

    outdated = False

    def __init__(self, lock: Path) -> None:
        super().__init__(lock, CLOSE_WRITE | CLOSE_NOWRITE)
        self._looked_at = time.monotonic()
        self._taken = False

    @property
    def seconds(self) -> float:  # type: ignore[override]
        """Until the next look."""
        rest = _REST_SECONDS if self._taken else _LOOK_SECONDS
        return max(0.0, self._looked_at + rest - time.monotonic())

    def drain(self) -> str:
        """See `component.Watch`."""
        if self.outdated:
            raise OSError("the rules are no longer in iptables' tables")
        self._taken = bool(super().drain()) or self._taken
        if self.seconds > 0:
            return ""
        taken, self._taken, self._looked_at = self._taken, False, time.monotonic()
        what = "a program took the lock of" if taken else "an occasional look at"
        return f"{what} iptables' tables"


class IptablesBackend:
    """Implements `state.DnatBackend` on legacy xtables: one commit per table, all under one lock."""

    name = "iptables"

    def __init__(self) -> None:
        self._tables = {(family, table): XtTable(family, table) for family in FAMILIES for table in TABLES}

    def read(self) -> DnatState:
        """See `DnatBackend.read`. A table that does not exist is not created."""
        try:
            return state_of({key: self._state(*key) for key in self._tables})
        except PermissionError:
            return DnatState(unreadable="iptables' tables can't be read without root or CAP_NET_ADMIN")

    def compared(self, state: DnatState, desired: DnatRules) -> DnatState:
        """See `DnatBackend.compared`."""
        return xt_compared(state, desired) if isinstance(state, XtState) else state

    def script(self, change: DnatChange) -> str:
        """Return all of nodeagent's chains as iptables-restore takes them, for a person. Pure."""
        return xt_script(layout(change.desired)) if change else ""

    def run(self, change: DnatChange) -> str:
        """See `DnatBackend.run`: table by table. Those after one that is rejected are as before."""
        work = list(self._work(change))
        if not work:
            return ""
        missing: dict[Family, str] = {}
        with xtables_lock():
            for (family, table), wanted in work:
                if family in missing:
                    continue
                try:
                    self._tables[family, table].change(wanted)
                except XtMissingError as error:
                    missing[family] = str(error)
        if missing.keys() == {family for (family, _), _ in work}:
            raise XtMissingError("\n".join(missing.values()))
        return "\n".join(
            f"IPv{family} is not redirected, the other family is. {reason}"
            for family, reason in missing.items()
        )

    def watch(self) -> XtablesWatch:
        """See `DnatBackend.watch`."""
        return XtablesWatch(lock_path())

    def _state(self, family: Family, table: TableName) -> Table:
        try:
            if not _holds_ours(family, table):
                return Table()
        except PermissionError:
            raise  # of an ordinary user
        except OSError as error:
            raise ApplyError(f"could not list the kernel's legacy tables: {error.strerror}") from error
        return self._tables[family, table].read()

    def _work(self, change: DnatChange) -> Iterator[tuple[Key, Table]]:
        """Yield the tables that may need changes, in order: the guard is made first and removed last."""
        if not change:
            return
        layouts = layout(change.desired)
        for table in TABLES if change.desired.guarded else reversed(TABLES):
            for family in FAMILIES:
                if layouts[family, table] or self._state(family, table):
                    yield (family, table), layouts[family, table]


# include/uapi/linux/netfilter_ipv4/ip_tables.h and netfilter_ipv6/ip6_tables.h: the same numbers in both.
_GET_INFO, _GET_ENTRIES = 64, 65
_INFO = struct.Struct("@32s12I")  # name, valid_hooks, hook_entry[5], underflow[5], num_entries; then size
_GET = struct.Struct("@32sI4x")  # name, size; the entries follow, aligned to 8

_NAMES: Final[dict[Family, str]] = {4: "ip_tables_names", 6: "ip6_tables_names"}
_SOCKETS: Final[dict[Family, tuple[int, int]]] = {
    4: (socket.AF_INET, socket.IPPROTO_IP),
    6: (socket.AF_INET6, socket.IPPROTO_IPV6),
}

_libc = ctypes.CDLL(None, use_errno=True)


def missing_nat(family: Family) -> str:
    """Return what the kernel lacks for its table nat, made if it can; empty if that is not known."""
    try:
        _info(family, "nat")
    except PermissionError:
        return ""
    except OSError as error:
        return (
            f"the kernel has no legacy table nat of {PROGRAMS[family]} ({error.strerror}): modprobe "
            f"ip{'6' if family == 6 else ''}table_nat on the host"
        )
    return ""


def _holds_ours(family: Family, table: TableName) -> bool:
    """Whether the table exists in this network namespace, with one of nodeagent's chains. Raises OSError."""
    # thread-self: /proc/net is that of the process's first thread, in whatever namespace that is.
    try:
        existing = Path("/proc/thread-self/net", _NAMES[family]).read_text(encoding="ascii").split()
    except FileNotFoundError:  # without the kernel's module
        return False
    if table not in existing:
        return False
    while True:
        try:
            size = struct.unpack_from("@I", _info(family, table), _INFO.size)[0]
            entries = _get(family, _GET_ENTRIES, _GET.pack(table.encode("ascii"), size) + bytes(size))
        except BlockingIOError:
            continue  # the table has changed between the two queries
        # A chain's head has its name (xt_error_target).
        return PREFIX.encode("ascii") in entries


def _info(family: Family, table: TableName) -> bytes:
    return _get(family, _GET_INFO, _INFO.pack(table.encode("ascii"), *([0] * 12)) + bytes(4))


def _get(family: Family, option: int, question: bytes) -> bytes:
    """Call getsockopt(2) with a buffer that says what is requested; Python's own passes none."""
    kind, level = _SOCKETS[family]
    buffer = ctypes.create_string_buffer(question, len(question))
    length = ctypes.c_uint32(len(question))
    with socket.socket(kind, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        if _libc.getsockopt(control.fileno(), level, option, buffer, ctypes.byref(length)) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    return buffer.raw
