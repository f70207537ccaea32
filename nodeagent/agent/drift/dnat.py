"""Watches the DNAT rules: nodeagent's table of nftables, or its chains in the legacy tables.

nftables: the kernel sends every committed transaction of the network namespace as messages of the netfilter
subsystem NFNL_SUBSYS_NFTABLES, one for each object, and NFT_MSG_NEWGEN at the end, which names the process.
Only CAP_NET_ADMIN may listen (netlink_allowed(); nfnetlink sets no NL_CFG_F_NONROOT_RECV).

Legacy tables: the kernel reports no change of a legacy table. But iptables, iptables-restore and with them
kube-proxy open the lock file before they change one and close it afterwards, which inotify reports. An
occasional check finds changes by a program that takes no lock.
"""

import struct
import time
from dataclasses import replace
from typing import ClassVar

from nodeagent.agent import inotify
from nodeagent.agent.drift.netlink_socket import (
    Message,
    Notifications,
    NotificationsLostError,
    attributes,
    messages,
    text,
)
from nodeagent.agent.drift.watcher import OnDrift, Watcher
from nodeagent.agent.inotify import EventsLostError, Inotify
from nodeagent.components.component import ComponentName
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nft_script import TABLE
from nodeagent.components.dnat.state import DnatState
from nodeagent.components.dnat.xt_tables import lock_path
from nodeagent.errors import ApplyError

_NETLINK_NETFILTER = 12
# include/uapi/linux/netfilter/nfnetlink.h: the group, the subsystem, struct nfgenmsg.
_NFNLGRP_NFTABLES = 7
_SUBSYSTEM = 10
_NFGENMSG = struct.Struct(">BBH")
_NFPROTO_INET = 1

# include/uapi/linux/netfilter/nf_tables.h. The attribute that names the table is 1 for every kind of object.
_NEWGEN = 15
_TABLE_NAME = 1
_GEN_PROC_PID, _GEN_PROC_NAME = 2, 3
_WORDS = {
    0: "table added",
    2: "table deleted",
    3: "chain added",
    5: "chain deleted",
    6: "rule added",
    8: "rule deleted",
    9: "set added",
    11: "set deleted",
    12: "element added",
    14: "element deleted",
}

_NEEDLE = TABLE.encode() + b"\0"


class NftablesWatcher(Watcher[DnatState, Notifications]):
    """Notices every transaction that touches the table `inet nodeagent`.

    The large transactions of kube-proxy cost one search for nodeagent's name in each datagram.

    Args:
        on_drift: See `Watcher`; the component is "dnat".
    """

    component: ClassVar[ComponentName] = "dnat"

    def __init__(self, on_drift: OnDrift) -> None:
        super().__init__(on_drift)
        self._kinds: dict[str, int] = {}
        self._transactions: list[str] = []
        self._own = 0
        self._lost = False

    def expect(self, state: DnatState) -> None:
        """See `Watcher`. Ignores this many transactions; if there were more, another program made them."""
        with self._lock:
            self._own += state.transactions

    def _open(self) -> Notifications:
        return Notifications(_NETLINK_NETFILTER, (_NFNLGRP_NFTABLES,))

    def _read(self, source: Notifications) -> None:
        try:
            for datagram in source.datagrams():
                # The end of a transaction matters only if it contains something of nodeagent's.
                if self._kinds or _NEEDLE in datagram:
                    for message in messages(datagram):
                        self._take(message)
        except NotificationsLostError:
            self._lost = True

    def _judge(self) -> str:
        own, self._own = self._own, 0
        lost, self._lost = self._lost, False
        transactions, self._transactions = self._transactions, []
        if lost:
            self._kinds.clear()
            return f"table inet {TABLE} might have changed: too many notifications came at once"
        if len(transactions) <= own:
            return ""
        # It is unknown which of them were nodeagent's: all are shown.
        return f"table inet {TABLE} was changed: {'; '.join(dict.fromkeys(transactions))}"

    def _take(self, message: Message) -> None:
        if message.type >> 8 != _SUBSYSTEM:
            return
        kind = message.type & 0xFF
        found = attributes(message.payload, _NFGENMSG.size)
        if kind == _NEWGEN:
            if self._kinds:
                process = int.from_bytes(found.get(_GEN_PROC_PID, b""), "big")
                name = text(found.get(_GEN_PROC_NAME, b"")) or "unknown"
                told = ", ".join(
                    f"{count} times {what}" if count > 1 else what for what, count in self._kinds.items()
                )
                self._transactions.append(f"{told} (by {name}, process {process} of the host)")
                self._kinds.clear()
        elif message.payload[0] == _NFPROTO_INET and found.get(_TABLE_NAME) == _NEEDLE:
            what = _WORDS.get(kind, "something else changed")
            self._kinds[what] = self._kinds.get(what, 0) + 1


_CLOSED = inotify.CLOSE_WRITE | inotify.CLOSE_NOWRITE
_APPEARED = inotify.CREATE | inotify.MOVED_TO
_DIRECTORY_GONE = inotify.DELETE_SELF | inotify.MOVE_SELF

_LOOK_SECONDS = 10.0
_SHARE = 10
"""Checks take no more than one part in this many of the time if kube-proxy syncs without a pause ..."""
_LONGEST_REST_SECONDS = 0.3
"""... unless that would make a displaced jump wait for long."""


class XtablesWatcher(Watcher[DnatState, Inotify]):
    """Notices every change of nodeagent's chains, and rules inserted before its jumps.

    Another program's changes elsewhere cause no pass: nodeagent's part is read and compared.

    Args:
        on_drift: See `Watcher`; the component is "dnat".
    """

    component: ClassVar[ComponentName] = "dnat"

    def __init__(self, on_drift: OnDrift) -> None:
        super().__init__(on_drift)
        self._backend = IptablesBackend()
        self._lock_file = lock_path()
        self._file_watch = 0
        self._touched = False
        self._rest_until = 0.0
        self._look_at = 0.0
        self._expected: DnatState | None = None
        self._told: DnatState | str | None = None

    def expect(self, state: DnatState) -> None:
        """See `Watcher`. There is no drift as long as the tables have exactly that."""
        with self._lock:
            self._told = None
            self._expected = replace(state, superseded=None)

    def _open(self) -> Inotify:
        return Inotify()

    def _begin(self, source: Inotify) -> None:
        source.watch_directory(self._lock_file.parent, _APPEARED | _DIRECTORY_GONE)
        self._watch_file(source)
        self._look_at = time.monotonic() + _LOOK_SECONDS

    def _watch_file(self, source: Inotify) -> None:
        """Watch the file: a single mounted file is the host's, and its events come from every mount."""
        try:
            self._file_watch = source.watch_file(self._lock_file, _CLOSED)
        except FileNotFoundError:
            # No program has taken the lock since the boot; the directory's events report the first.
            self._file_watch = 0

    def _read(self, source: Inotify) -> None:
        try:
            for event in source.fetch():
                if event.watch == self._file_watch:
                    self._touched = True
                elif event.mask & _DIRECTORY_GONE:
                    gone = str(self._lock_file.parent)
                    raise FileNotFoundError(2, "the directory was moved or deleted", gone)
                elif event.name == self._lock_file.name:
                    self._watch_file(source)
                    self._touched = True
        except EventsLostError:
            self._touched = True

    def _timeout(self) -> float | None:
        due = self._rest_until if self._touched else self._look_at
        return max(0.0, due - time.monotonic())

    def _judge(self) -> str:
        began = time.monotonic()
        if began < (self._rest_until if self._touched else self._look_at):
            return ""
        self._touched = False
        found = self._look()
        ended = time.monotonic()
        self._look_at = ended + _LOOK_SECONDS
        self._rest_until = ended + min((ended - began) * _SHARE, _LONGEST_REST_SECONDS)
        # One sync takes the lock several times: the same state is reported once.
        if found in (self._expected, self._told):
            return ""
        self._told = found
        return found if isinstance(found, str) else _words(found)

    def _look(self) -> DnatState | str:
        try:
            return self._backend.read()
        except ApplyError as error:
            return str(error)


def _words(found: DnatState) -> str:
    if not found.present:
        return "the chains of nodeagent were deleted"
    return "; ".join(found.damage) or "entries in the chains of nodeagent were changed"
