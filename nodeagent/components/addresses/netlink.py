"""Links and addresses of the kernel, and which of the addresses are nodeagent's. Only this imports pyroute2.

pyroute2 is imported by the first call that needs it, and of it only what IPRoute needs: 5 MB in place of 10.
It ships no types; nothing of it leaves this module.

On nodeagent's own device every address in the configured ranges is nodeagent's. On `lo`, which belongs to the
system, only an address in the ranges that has a mark:

- IPv4: the label `lo:hairpin0`, which the kernel keeps with the address.
- IPv6 has no labels: the protocol number of the address (IFA_PROTO, Linux 5.18). Older kernels drop that
  attribute; there a host address is nodeagent's if it is deprecated for ever, without DAD and without a
  prefix route, as nodeagent adds it and hardly anybody else would.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EADDRNOTAVAIL, EEXIST, ENODEV, ETIMEDOUT
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from nodeagent.errors import ApplyError
from nodeagent.model.addresses import IPAddress
from nodeagent.model.facts import InterfaceAddress

ALIAS = "nodeagent"
"""The alias (IFLA_IFALIAS) of a device that nodeagent made: `ip link` shows it."""

# include/uapi/linux/if_addr.h: 1 to 3 are the kernel's own (IFAPROT_KERNEL_LO, _RA, _LL), the rest is free.
PROTOCOL = 110

# IFA_F_* of the same header: NODAD makes an address usable at once; NOPREFIXROUTE keeps the route out of the
# main table (the one in the local table is all it takes); DEPRECATED is what a preferred lifetime of 0 gives.
NODAD, DEPRECATED, NOPREFIXROUTE = 0x02, 0x20, 0x200
FLAGS_GIVEN = NODAD | NOPREFIXROUTE
_FLAGS_SHOWN = FLAGS_GIVEN | DEPRECATED

Ranges = tuple[IPv4Network, IPv6Network]


class KernelAddress(Struct, frozen=True):
    """An address as the kernel lists it; `protocol` is None where the kernel tells none."""

    address: IPAddress
    prefix_length: int
    interface: str
    label: str = ""
    flags: int = 0
    protocol: int | None = None


def label_on_lo(device: str) -> str:
    """Return the label of an IPv4 address on `lo`: at most 15 bytes (IFNAMSIZ - 1), as for an interface."""
    return f"lo:{device}"[:15]


def owned(found: KernelAddress, ranges: Ranges, device: str, *, device_is_ours: bool) -> InterfaceAddress:
    """Return the address as the planner sees it, with the verdict whether it is ours."""
    in_range = any(found.address in network for network in ranges)
    if found.interface == device:
        ours = in_range and device_is_ours
    else:
        ours = in_range and found.interface == "lo" and _marked(found, device)
    return InterfaceAddress(found.address, found.prefix_length, found.interface, ours=ours)


def _marked(found: KernelAddress, device: str) -> bool:
    if found.prefix_length != found.address.max_prefixlen:
        return False
    if not isinstance(found.address, IPv6Address):
        return found.label == label_on_lo(device)
    if found.protocol is not None:
        return found.protocol == PROTOCOL
    return found.flags & _FLAGS_SHOWN == _FLAGS_SHOWN


# RT_SCOPE_HOST of include/uapi/linux/rtnetlink.h: inet_select_addr() passes over an address whose scope is
# narrower than the destination's, so this one is never the source of traffic that leaves the node.
_SCOPE_HOST = 254

_IFF_UP = 1
_FOREVER = 0xFFFFFFFF

# Of this thread's network namespace; that of the process may be another (in tests it is).
_IPV6_ROUTES = Path("/proc/thread-self/net/ipv6_route")
_ROUTE_SECONDS = 2.0
_PAUSE_SECONDS = 0.001


class NetlinkRefusedError(ApplyError):
    """The kernel refused a request.

    Args:
        errno: Its error number.
        what: What was asked of it, as the beginning of the message.
    """

    def __init__(self, errno: int, what: str) -> None:
        super().__init__(f"{what}: {os.strerror(errno)}")
        self.errno = errno


class Link(Struct, frozen=True):
    """A network interface: `kind` is empty for hardware, `alias` for most."""

    index: int
    name: str
    kind: str
    alias: str
    up: bool


class Netlink:
    """One open netlink socket; listing needs no privilege, changing needs CAP_NET_ADMIN."""

    def __init__(self, route: Any) -> None:  # noqa: ANN401 - pyroute2 has no types
        self._route = route

    def link(self, name: str) -> Link | None:
        """Return the interface of that name, or None. Asks for it alone: a node has hundreds, one a pod."""
        index = _index(name)
        if index is None:
            return None
        try:
            messages = self._ask(f"show {name}", self._route.get_links, index)
        except NetlinkRefusedError as error:
            if error.errno == ENODEV:  # deleted since
                return None
            raise
        return _link(messages[0])

    def addresses(self) -> list[KernelAddress]:
        """All addresses of both families, in the kernel's order."""
        messages = self._ask("list the addresses", self._route.get_addr)
        names = dict(socket.if_nameindex())
        # An interface deleted between the two listings took its addresses with it.
        return [_address(one, names[one["index"]]) for one in messages if one["index"] in names]

    def make(self, name: str, kind: str) -> None:
        """Make a device, give it our alias and set it up; a half-made one is deleted again.

        A dummy device has IFF_NOARP of its own (dummy_setup()).

        Raises:
            NetlinkRefusedError: EOPNOTSUPP where the kernel knows no such kind.
        """
        self._ask(f"make the {kind} device {name}", self._route.link, "add", ifname=name, kind=kind)
        try:
            self._set(name, state="up", ifalias=ALIAS)
        except NetlinkRefusedError:
            self.delete(name)
            raise

    def set_up(self, name: str) -> None:
        """Set a device up."""
        self._set(name, state="up")

    def delete(self, name: str) -> None:
        """Delete a device with all of its addresses; one that is gone already is success."""
        with _accepting(ENODEV):
            self._ask(f"delete {name}", self._route.link, "del", index=_index_of(name))

    def add(self, address: IPAddress, name: str, label: str) -> None:
        """Put a relay address on a device, to be bound and reached at once; one that stands is success.

        An IPv6 address can be bound when the kernel has answered, but its host route is made by a work queue
        of the kernel's a moment later, even without DAD (addrconf_dad_work()): one connection in fifty that
        was tried at once met "Network is unreachable". So the route is waited for.

        IPv6 has no scope to keep an address out of source selection. The preferred lifetime of 0 does
        (RFC 6724, rule 3): it can be bound and reached, but any other address of the node with the
        destination's scope is preferred as a source. Left is the node that has a route for IPv6 and no
        address beyond the link's: the kernel has nothing else to choose there (rule 2).

        Args:
            address: The address; it gets a host's prefix length.
            name: The device.
            label: The label of an IPv4 address.
        """
        options: dict[str, object] = {"scope": _SCOPE_HOST, "label": label}
        if isinstance(address, IPv6Address):
            options = {"flags": FLAGS_GIVEN, "preferred_lft": 0, "valid_lft": _FOREVER}
        with _accepting(EEXIST):
            self._address("add", address, address.max_prefixlen, name, proto=PROTOCOL, **options)
        if isinstance(address, IPv6Address):
            _await_route(address, name)

    def remove(self, address: IPAddress, prefix_length: int, name: str) -> None:
        """Take an address away; one that is gone already, or its device, is success."""
        with _accepting(EADDRNOTAVAIL, ENODEV):
            self._address("del", address, prefix_length, name)

    def _set(self, name: str, **options: object) -> None:
        self._ask(f"set up {name}", self._route.link, "set", index=_index_of(name), **options)

    def _address(
        self, command: str, address: IPAddress, prefix_length: int, name: str, **options: object
    ) -> None:
        self._ask(
            f"{command} {address} on {name}",
            self._route.addr,
            command,
            index=_index_of(name),
            address=str(address),
            prefixlen=prefix_length,
            **options,
        )

    def _ask(self, what: str, call: Callable[..., Any], *values: object, **options: object) -> list[Any]:
        # Loaded together with IPRoute, and under its package's name still.
        refused = sys.modules["pyroute2.netlink.exceptions"].NetlinkError
        try:
            return list(call(*values, **options))
        except refused as error:
            raise NetlinkRefusedError(error.code, f"the kernel did not {what}") from error


@contextmanager
def opened() -> Iterator[Netlink]:
    """Yield a netlink socket in this thread's network namespace, closed at the end.

    Raises:
        ApplyError: no socket was to be had.
    """
    try:
        route = _iproute()()
    except OSError as error:
        raise ApplyError(f"no netlink socket to read this node's addresses: {error.strerror}.") from error
    with route:
        yield Netlink(route)


@cache
def _iproute() -> Any:  # noqa: ANN401 - pyroute2 has no types
    """Return the class IPRoute, without the rest of its package.

    The package's `__init__` imports all of it (NDB, IPVS, 9P ...). A package that is only a path stands in
    for it while IPRoute is imported, and is removed again: whatever imports pyroute2 later gets all of it.
    """
    if "pyroute2" not in sys.modules and (spec := find_spec("pyroute2")):
        bare = ModuleType("pyroute2")
        bare.__path__ = spec.submodule_search_locations or []
        sys.modules["pyroute2"] = bare
        try:
            return import_module("pyroute2.iproute.linux").IPRoute
        finally:
            del sys.modules["pyroute2"]
    return import_module("pyroute2.iproute.linux").IPRoute


def _await_route(address: IPv6Address, name: str) -> None:
    """Wait until the kernel has made an address's host route.

    It is on the address's own device (Linux 4.14 or newer): one elsewhere says nothing of this one.
    """
    deadline = time.monotonic() + _ROUTE_SECONDS
    while not _has_route(address, name):
        if time.monotonic() > deadline:
            raise NetlinkRefusedError(ETIMEDOUT, f"{address} is on {name}, but there is no route to it")
        time.sleep(_PAUSE_SECONDS)


def _has_route(address: IPv6Address, name: str) -> bool:
    host = f"{address.packed.hex()} 80 "
    lines = _IPV6_ROUTES.read_text(encoding="ascii").splitlines()
    return any(line.startswith(host) and line.split()[-1] == name for line in lines)


@contextmanager
def _accepting(*numbers: int) -> Iterator[None]:
    """Take a refusal with one of these error numbers as success: what was asked for is the case already."""
    try:
        yield
    except NetlinkRefusedError as error:
        if error.errno not in numbers:
            raise


def _index(name: str) -> int | None:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return None


def _index_of(name: str) -> int:
    index = _index(name)
    if index is None:
        raise NetlinkRefusedError(ENODEV, f"there is no device {name}")
    return index


def _link(message: Any) -> Link:  # noqa: ANN401 - pyroute2 has no types
    information = message.get_attr("IFLA_LINKINFO")
    return Link(
        index=message["index"],
        name=message.get_attr("IFLA_IFNAME"),
        kind=(information.get_attr("IFLA_INFO_KIND") if information else None) or "",
        alias=message.get_attr("IFLA_IFALIAS") or "",
        up=bool(message["flags"] & _IFF_UP),
    )


def _address(message: Any, interface: str) -> KernelAddress:  # noqa: ANN401 - pyroute2 has no types
    # IFA_LOCAL is this end of a point-to-point link, IFA_ADDRESS the other; IPv6 has it for such alone.
    text = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
    flags = message.get_attr("IFA_FLAGS")
    return KernelAddress(
        address=ip_address(text),
        prefix_length=message["prefixlen"],
        interface=interface,
        label=message.get_attr("IFA_LABEL") or "",
        flags=message["flags"] if flags is None else flags,
        protocol=message.get_attr("IFA_PROTO"),
    )
