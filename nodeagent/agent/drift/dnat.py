"""Watches the DNAT rules: nodeagent's table of nftables, or its chains in the legacy tables.

nftables: the kernel sends every committed transaction of the network namespace as messages of the netfilter
subsystem NFNL_SUBSYS_NFTABLES, one for each object, and NFT_MSG_NEWGEN at the end, which names the process.
Only CAP_NET_ADMIN may listen (netlink_allowed(); nfnetlink sets no NL_CFG_F_NONROOT_RECV).

Legacy tables: the kernel reports no change of a legacy table. But iptables, iptables-restore and with them
kube-proxy open the lock file before they change one and close it afterwards, which inotify reports. An
occasional check finds changes by a program that takes no lock.
"""

import time
from collections import Counter
from dataclasses import replace
from typing import ClassVar

from nodeagent.agent import inotify
from nodeagent.agent.drift.watcher import ComparingWatcher, OnDrift, Watcher
from nodeagent.agent.inotify import EventsLostError, Inotify
from nodeagent.components.component import ComponentName
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nft_script import TABLE
from nodeagent.components.dnat.state import DnatState
from nodeagent.components.dnat.xt_tables import lock_path
from nodeagent.netlink import Notifications, nftables_notifications

# include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h
_NFPROTO_INET = 1
_NEWGEN = 15
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
    """

    component: ClassVar[ComponentName] = "dnat"

    def __init__(self, on_drift: OnDrift) -> None:
        super().__init__(on_drift)
        self._kinds: Counter[str] = Counter()
        self._transactions: list[str] = []
        self._own = 0

    def expect(self, state: DnatState) -> None:
        """See `Watcher`. Ignores this many transactions; if there were more, another program made them."""
        with self._lock:
            self._own += state.transactions

    def _open(self) -> Notifications:
        # The end of a transaction matters only if it contains something of nodeagent's.
        return nftables_notifications(lambda datagram: bool(self._kinds) or _NEEDLE in datagram)

    def _begin(self, _: Notifications) -> None:
        self._kinds.clear()

    def _read(self, source: Notifications) -> None:
        for message in source.messages():
            kind = message["header"]["type"] & 0xFF
            if kind == _NEWGEN and self._kinds:
                process, name = message.get_attr("NFTA_GEN_PROC_PID"), message.get_attr("NFTA_GEN_PROC_NAME")
                told = ", ".join(
                    f"{count} times {what}" if count > 1 else what for what, count in self._kinds.items()
                )
                self._transactions.append(f"{told} (by {name or 'unknown'}, process {process} of the host)")
                self._kinds.clear()
            elif message["nfgen_family"] == _NFPROTO_INET and message.get_attr("TABLE") == TABLE:
                self._kinds[_WORDS.get(kind, "something else changed")] += 1

    def _judge(self, _: Notifications) -> str:
        own, self._own = self._own, 0
        transactions, self._transactions = self._transactions, []
        if len(transactions) <= own:
            return ""
        # It is unknown which of them were nodeagent's: all are shown.
        return f"table inet {TABLE} was changed: {'; '.join(dict.fromkeys(transactions))}"


_CLOSED = inotify.CLOSE_WRITE | inotify.CLOSE_NOWRITE
_APPEARED = inotify.CREATE | inotify.MOVED_TO
_DIRECTORY_GONE = inotify.DELETE_SELF | inotify.MOVE_SELF

_CHECK_SECONDS = 10.0
_SHARE = 10
"""Checks take no more than one part in this many of the time if kube-proxy syncs without a pause ..."""
_LONGEST_REST_SECONDS = 0.3
"""... unless that would make a displaced jump wait for long."""


class XtablesWatcher(ComparingWatcher[DnatState, Inotify, DnatState]):
    """Notices every change of nodeagent's chains, and rules inserted before its jumps.

    Another program's changes elsewhere cause no pass: nodeagent's part is read and compared.
    """

    component: ClassVar[ComponentName] = "dnat"

    def __init__(self, on_drift: OnDrift) -> None:
        super().__init__(on_drift)
        self._backend = IptablesBackend()
        self._lock_file = lock_path()
        self._file_watch = 0
        self._rest_until = 0.0
        self._check_at = 0.0

    def _compared(self, state: DnatState) -> DnatState:
        return replace(state, superseded=None)

    def _open(self) -> Inotify:
        return Inotify()

    def _begin(self, source: Inotify) -> None:
        source.watch(self._lock_file.parent, _APPEARED | _DIRECTORY_GONE | inotify.ONLYDIR)
        self._watch_file(source)
        self._check_at = time.monotonic() + _CHECK_SECONDS

    def _watch_file(self, source: Inotify) -> None:
        """Watch the file: a single mounted file is the host's, and its events come from every mount."""
        try:
            self._file_watch = source.watch(self._lock_file, _CLOSED)
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

    def _timeout(self, _: Inotify) -> float | None:
        due = self._rest_until if self._touched else self._check_at
        return max(0.0, due - time.monotonic())

    def _judge(self, source: Inotify) -> str:
        began = time.monotonic()
        if began < (self._rest_until if self._touched else self._check_at):
            return ""
        self._touched = True
        told = super()._judge(source)
        ended = time.monotonic()
        self._check_at = ended + _CHECK_SECONDS
        self._rest_until = ended + min((ended - began) * _SHARE, _LONGEST_REST_SECONDS)
        return told

    def _read_actual(self) -> DnatState:
        return self._backend.read()

    def _difference(self, found: DnatState) -> str:
        if not found.present:
            return "the chains of nodeagent were deleted"
        return "; ".join(found.damage) or "entries in the chains of nodeagent were changed"
