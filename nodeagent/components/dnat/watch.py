"""Watches the DNAT rules: nodeagent's table of nftables, or the lock of the legacy tables.

nftables: the kernel sends every committed transaction of the network namespace as messages of the netfilter
subsystem NFNL_SUBSYS_NFTABLES, one for each object, and NFT_MSG_NEWGEN at the end, which names the process.
Only CAP_NET_ADMIN may listen (netlink_allowed(); nfnetlink sets no NL_CFG_F_NONROOT_RECV).

Legacy tables: the kernel reports no change of a legacy table. But iptables, iptables-restore and with them
kube-proxy open the lock file before they change one and close it afterwards, which inotify reports. An
occasional look finds changes by a program that takes no lock.
"""

import time
from pathlib import Path

from nodeagent.components.dnat.nft_script import TABLE
from nodeagent.inotify import CLOSE_NOWRITE, CLOSE_WRITE, FileEvents
from nodeagent.netlink import NFTABLES_GROUPS, Notifications, nftables_socket

# include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h
_NFPROTO_INET = 1
_NEWGEN = 15
_NEEDLE = TABLE.encode() + b"\0"


class NftablesWatch(Notifications):
    """Implements `component.Watch`: every transaction that touches the table `inet nodeagent`.

    The large transactions of kube-proxy cost one search for nodeagent's name in each datagram.
    """

    def __init__(self) -> None:
        self._concerned = False
        # The end of a transaction matters only if it contains something of nodeagent's.
        super().__init__(
            nftables_socket(), NFTABLES_GROUPS, lambda datagram: self._concerned or _NEEDLE in datagram
        )

    def drain(self) -> str:
        """See `component.Watch`. A transaction is reported when its end has arrived."""
        programs: dict[str, None] = {}
        for message in self.messages():
            if message["header"]["type"] & 0xFF != _NEWGEN:
                ours = message["nfgen_family"] == _NFPROTO_INET and message.get_attr("TABLE") == TABLE
                self._concerned = self._concerned or ours
            elif self._concerned:
                process, name = message.get_attr("NFTA_GEN_PROC_PID"), message.get_attr("NFTA_GEN_PROC_NAME")
                programs[f"{name or 'unknown'}, process {process} of the host"] = None
                self._concerned = False
        return f"table inet {TABLE} was changed by {'; '.join(programs)}" if programs else ""


_LOOK_SECONDS = 10.0
_REST_SECONDS = 0.3
"""Between two looks, however often programs take the lock: large tables take tens of milliseconds to read."""


class XtablesWatch(FileEvents):
    """Implements `component.Watch`: when a program has held the lock, and every ten seconds."""

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
        self._taken = bool(super().drain()) or self._taken
        if self.seconds > 0:
            return ""
        taken, self._taken, self._looked_at = self._taken, False, time.monotonic()
        what = "a program took the lock of" if taken else "an occasional look at"
        return f"{what} iptables' tables"
