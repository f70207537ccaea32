"""Watches our nftables table, and no other, by the kernel's own notifications.

The kernel sends every committed transaction of the network namespace as messages of the netfilter subsystem
NFNL_SUBSYS_NFTABLES, one for each object, and NFT_MSG_NEWGEN at the end, which names the process. Only
CAP_NET_ADMIN may listen (netlink_allowed(); nfnetlink sets no NL_CFG_F_NONROOT_RECV).
"""

import struct
from typing import ClassVar

from nodeagent.agent.drift.netlink_socket import (
    Message,
    Notifications,
    NotificationsLostError,
    attributes,
    messages,
    text,
)
from nodeagent.agent.drift.watcher import OnDrift, Watcher
from nodeagent.components.component import ComponentName
from nodeagent.components.dnat.change import DnatState
from nodeagent.components.dnat.nft_script import TABLE

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


class NftablesWatcher(Watcher[DnatState]):
    """Notices every transaction that touches the table `inet nodeagent`.

    The large transactions of kube-proxy are passed over by one search for our name in each datagram.

    Args:
        on_drift: See `Watcher`; the part is "dnat".
    """

    part: ClassVar[ComponentName] = "dnat"

    def __init__(self, on_drift: OnDrift) -> None:
        super().__init__(on_drift)
        self._socket: Notifications | None = None
        self._kinds: dict[str, int] = {}
        self._transactions: list[str] = []
        self._own = 0
        self._lost = False

    def expect(self, state: DnatState) -> None:
        """See `Watcher`. As many transactions are ignored; if there were more, another program made them."""
        with self._lock:
            self._own += state.transactions

    def _open(self) -> None:
        self._socket = Notifications(_NETLINK_NETFILTER, (_NFNLGRP_NFTABLES,))

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _descriptors(self) -> tuple[int, ...]:
        return (self._socket.fileno(),) if self._socket else ()

    def _read(self) -> None:
        if self._socket is None:
            return
        try:
            for datagram in self._socket.datagrams():
                # The end of a transaction matters only once something of ours was seen in it.
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
        # Which of them were ours can't be told: all are shown.
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
