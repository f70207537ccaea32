"""Links and addresses of the kernel, and which of the addresses are nodeagent's. Only this imports pyroute2.

Only pyroute2's messages for links and addresses are imported, by the first call that needs them: 1.3 MB
instead of 10. It ships no types; nothing of it leaves this package.

On nodeagent's own device every address in the configured ranges is nodeagent's. On `lo`, which belongs to the
system, only an address in the ranges that has a mark:

- IPv4: the label `lo:hairpin0`, which the kernel keeps with the address.
- IPv6 has no labels: the protocol number of the address (IFA_PROTO, Linux 5.18). Older kernels drop that
  attribute; there, a host address is nodeagent's if it is deprecated forever, without DAD and without a
  prefix route, as nodeagent adds it and hardly any other program would.
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

from nodeagent.components.addresses.route_socket import CREATE, EXCLUSIVE, RouteSocket
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import IPAddress
from nodeagent.model.facts import InterfaceAddress

ALIAS = "nodeagent"
"""The alias (IFLA_IFALIAS) of a device that nodeagent made: `ip link` shows it."""

# include/uapi/linux/if_addr.h: 1 to 3 are the kernel's own (IFAPROT_KERNEL_LO, _RA, _LL), the rest is free.
PROTOCOL = 110

# IFA_F_* of the same header: NODAD makes an address usable at once; NOPREFIXROUTE keeps the route out of the
# main table (the one in the local table is enough); DEPRECATED is the result of a preferred lifetime of 0.
NODAD, DEPRECATED, NOPREFIXROUTE = 0x02, 0x20, 0x200
FLAGS_GIVEN = NODAD | NOPREFIXROUTE
_FLAGS_SHOWN = FLAGS_GIVEN | DEPRECATED

Ranges = tuple[IPv4Network, IPv6Network]


class KernelAddress(Struct, frozen=True):
    """An address as the kernel lists it; `protocol` is None if the kernel shows none."""

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
    """Return the address as the planner sees it, and whether it is nodeagent's."""
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


# RT_SCOPE_HOST of include/uapi/linux/rtnetlink.h: inet_select_addr() skips an address whose scope is narrower
# than the destination's, so this one is never the source of traffic that leaves the node.
_SCOPE_HOST = 254

# include/uapi/linux/rtnetlink.h
_NEW_LINK, _DELETE_LINK, _GET_LINK = 16, 17, 18
_NEW_ADDRESS, _DELETE_ADDRESS, _GET_ADDRESS = 20, 21, 22

_IFF_UP = 1
_FOREVER = 0xFFFFFFFF

# Of this thread's network namespace; the process may be in another (in tests it is).
_IPV6_ROUTES = Path("/proc/thread-self/net/ipv6_route")
_ROUTE_SECONDS = 2.0
_PAUSE_SECONDS = 0.001


class NetlinkRefusedError(ApplyError):
    """The kernel rejected a request.

    Args:
        errno: Its error number.
        what: The request, as the beginning of the message.
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

    def __init__(self, route: RouteSocket) -> None:
        self._route = route
        self._messages = _message_classes()

    def link(self, name: str) -> Link | None:
        """Return the interface of that name, or None. Asks only for it: a node has hundreds, one per pod."""
        index = _index(name)
        if index is None:
            return None
        try:
            messages = self._ask(f"show {name}", _GET_LINK, index=index)
        except NetlinkRefusedError as error:
            if error.errno == ENODEV:  # deleted since
                return None
            raise
        return _link(messages[0])

    def addresses(self) -> list[KernelAddress]:
        """Return all addresses of both families, in the kernel's order."""
        with _explained("list the addresses"):
            messages = self._route.dump(_GET_ADDRESS, self._messages.address())
        names = dict(socket.if_nameindex())
        # The addresses of an interface deleted between the two listings are gone, too.
        return [_address(one, names[one["index"]]) for one in messages if one["index"] in names]

    def make(self, name: str, kind: str) -> None:
        """Make a device, set nodeagent's alias and set it up; a half-made one is deleted again.

        A dummy device has IFF_NOARP of its own (dummy_setup()).

        Raises:
            NetlinkRefusedError: EOPNOTSUPP if the kernel has no such kind.
        """
        attributes = [("IFLA_IFNAME", name), ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", kind)]})]
        what = f"make the {kind} device {name}"
        self._ask(what, _NEW_LINK, creating=CREATE | EXCLUSIVE, attrs=attributes)
        try:
            self._set_up(name, ("IFLA_IFALIAS", ALIAS))
        except NetlinkRefusedError:
            self.delete(name)
            raise

    def set_up(self, name: str) -> None:
        """Set a device up."""
        self._set_up(name)

    def delete(self, name: str) -> None:
        """Delete a device with all of its addresses; succeeds if there is none."""
        with _accepting(ENODEV):
            self._ask(f"delete {name}", _DELETE_LINK, index=_index_of(name))

    def add(self, address: IPAddress, name: str, label: str) -> None:
        """Put a relay address on a device, to be bound and reached at once; succeeds if it exists.

        An IPv6 address can be bound when the kernel has answered, but a work queue of the kernel makes its
        host route a moment later, even without DAD (addrconf_dad_work()): one connection in fifty that was
        tried at once failed with "Network is unreachable". So this method waits for the route.

        IPv6 has no scope to keep an address out of source selection. The preferred lifetime of 0 does
        (RFC 6724, rule 3): it can be bound and reached, but any other address of the node with the
        destination's scope is preferred as a source. The exception is a node that has a route for IPv6 and
        only link-local addresses: the kernel has no other choice there (rule 2).

        Args:
            address: The address; it gets a host's prefix length.
            name: The device.
            label: The label of an IPv4 address.
        """
        scope = _SCOPE_HOST
        attributes: list[tuple[str, object]] = [("IFA_LABEL", label)]
        if isinstance(address, IPv6Address):
            lifetime = {"ifa_preferred": 0, "ifa_valid": _FOREVER}
            scope, attributes = 0, [("IFA_FLAGS", FLAGS_GIVEN), ("IFA_CACHEINFO", lifetime)]
        message = self._address(address, address.max_prefixlen, name)
        message |= {"scope": scope, "attrs": [*message["attrs"], *attributes, ("IFA_PROTO", PROTOCOL)]}
        with _accepting(EEXIST), _explained(f"add {address} on {name}"):
            self._route.ask(_NEW_ADDRESS, message, CREATE | EXCLUSIVE)
        if isinstance(address, IPv6Address):
            _await_route(address, name)

    def remove(self, address: IPAddress, prefix_length: int, name: str) -> None:
        """Remove an address; succeeds if it, or its device, does not exist."""
        with _accepting(EADDRNOTAVAIL, ENODEV), _explained(f"remove {address} from {name}"):
            self._route.ask(_DELETE_ADDRESS, self._address(address, prefix_length, name))

    def _set_up(self, name: str, *attributes: tuple[str, str]) -> None:
        self._ask(
            f"set up {name}",
            _NEW_LINK,
            index=_index_of(name),
            flags=_IFF_UP,
            change=_IFF_UP,
            attrs=[*attributes],
        )

    def _address(self, address: IPAddress, prefix_length: int, name: str) -> Any:  # noqa: ANN401 - see _Messages
        """Return a message about one of nodeagent's addresses on a device."""
        ipv4 = address.version == 4
        message = self._messages.address()
        message |= {
            "family": socket.AF_INET if ipv4 else socket.AF_INET6,
            "prefixlen": prefix_length,
            "index": _index_of(name),
            "attrs": [(kind, str(address)) for kind in ("IFA_LOCAL", "IFA_ADDRESS")[0 if ipv4 else 1 :]],
        }
        return message

    def _ask(self, what: str, kind: int, *, creating: int = 0, **fields: object) -> list[Any]:
        """Send a request about a link, given by these fields of its message."""
        message = self._messages.link()
        message |= fields
        with _explained(what):
            return self._route.ask(kind, message, creating)


@contextmanager
def opened() -> Iterator[Netlink]:
    """Yield a netlink socket in this thread's network namespace, closed at the end.

    Raises:
        ApplyError: no socket is available.
    """
    try:
        route = RouteSocket()
    except OSError as error:
        raise ApplyError(f"no netlink socket to read this node's addresses: {error.strerror}.") from error
    with route:
        yield Netlink(route)


class _Messages(Struct, frozen=True):
    """pyroute2's classes for the two kinds of messages; it has no types."""

    link: Callable[[], Any]
    address: Callable[[], Any]


@cache
def _message_classes() -> _Messages:
    """Return them without the rest of their package.

    The package's `__init__` imports all of it (NDB, IPVS, 9P ...). A package that is only a path replaces it
    while they are imported, and is then removed: a later import of pyroute2 gets all of it.
    """
    bare = None
    if "pyroute2" not in sys.modules and (spec := find_spec("pyroute2")):
        bare = sys.modules["pyroute2"] = ModuleType("pyroute2")
        bare.__path__ = spec.submodule_search_locations or []
    try:
        return _Messages(
            import_module("pyroute2.netlink.rtnl.ifinfmsg").ifinfmsg,
            import_module("pyroute2.netlink.rtnl.ifaddrmsg").ifaddrmsg,
        )
    finally:
        if bare is not None:
            del sys.modules["pyroute2"]


def _await_route(address: IPv6Address, name: str) -> None:
    """Wait until the kernel has made an address's host route.

    It is on the address's own device (Linux 4.14 or newer): one on another device says nothing about it.
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
def _explained(what: str) -> Iterator[None]:
    """Turn an error of the kernel into one that names the request."""
    try:
        yield
    except OSError as error:
        raise NetlinkRefusedError(error.errno or 0, f"the kernel did not {what}") from error


@contextmanager
def _accepting(*numbers: int) -> Iterator[None]:
    """Ignore an error with one of these numbers: the requested state exists already."""
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
    # IFA_LOCAL is this end of a point-to-point link, IFA_ADDRESS the other; IPv6 has it only for these.
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
