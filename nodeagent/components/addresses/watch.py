"""Watches the relay addresses and their device, by the kernel's own notifications (rtnetlink(7))."""

import math
import socket
from ipaddress import ip_address
from typing import Any

from nodeagent.components.addresses.state import Ranges
from nodeagent.netlink import address_notifications


class AddressWatch:
    """Implements `component.Watch`: addresses in the ranges, and the device.

    A notification about another interface or address, of which each pod causes about 13, costs its decoding.
    """

    seconds = math.inf

    def __init__(self, interface: str, ranges: Ranges) -> None:
        self._source = address_notifications()
        self._interface = interface
        self._ranges = ranges
        try:
            self._index = socket.if_nametoindex(interface)
        except OSError:
            self._index = 0  # not made yet; its first notification shows it

    def fileno(self) -> int:
        """See `component.Watch`."""
        return self._source.fileno()

    def close(self) -> None:
        """See `component.Watch`."""
        self._source.close()

    def drain(self) -> str:
        """See `component.Watch`."""
        found = dict.fromkeys(filter(None, map(self._concerned, self._source.messages())))
        return "; ".join(found)

    def _concerned(self, message: Any) -> str:  # noqa: ANN401 - pyroute2 has no types
        event = message["event"]
        if event in {"RTM_NEWADDR", "RTM_DELADDR"}:
            text = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
            if text is None or not any(ip_address(text) in network for network in self._ranges):
                return ""
            # Another program's address in the ranges counts, too: when it is removed, its load balancer can
            # be served.
            return f"{text} was {'added' if event == 'RTM_NEWADDR' else 'removed'}"
        # A bridge sends DELLINK with its own family when a port leaves it.
        if message["family"] != socket.AF_UNSPEC:
            return ""
        if message.get_attr("IFLA_IFNAME") == self._interface:
            self._index = message["index"]
        elif message["index"] != self._index:
            return ""
        return f"the device {self._interface} was changed"
