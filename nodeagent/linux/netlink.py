"""Netlink (netlink(7)) by pyroute2: links, addresses, TCP sockets, and notifications. EFFECTS.

All of it is about the network namespace of the thread that calls. Only this imports pyroute2, in the first
call that needs it (13 MB); nothing of it leaves this module but its decoded messages.
"""

import math
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import EADDRNOTAVAIL, EEXIST, EINTR, ENODEV, ENOENT, ETIMEDOUT
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

from msgspec import Struct

from nodeagent.errors import ApplyError
from nodeagent.model.addresses import IPAddress

_IFF_UP = 1
_DUMP_INTERRUPTED = 0x10  # NLM_F_DUMP_INTR
_LISTINGS = 10

# Of this thread's network namespace; the process may be in another (in tests it is).
_IPV6_ROUTES = Path("/proc/thread-self/net/ipv6_route")
_ROUTE_SECONDS = 2.0
_PAUSE_SECONDS = 0.001

# include/uapi/linux/netlink.h
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
# include/uapi/linux/rtnetlink.h: RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR
ADDRESS_GROUPS = (1, 5, 9)
# include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h
_NETLINK_NETFILTER = 12
NFTABLES_GROUPS = (7,)
_NFTABLES = 10 << 8
_NEWGEN = 15
_KINDS = 32
# include/uapi/linux/sock_diag.h; nlmsghdr with NLM_F_REQUEST, and in it inet_diag_req_v2.
_NETLINK_SOCK_DIAG, _SOCK_DESTROY, _REQUEST = 4, 21, 1
_DESTROY = struct.Struct("=IHH8xBBxxI2s2s16s16sIQ")
_ERROR = struct.Struct("=16xi")
_DESTROYED_AT_ONCE = 1000

# include/uapi/asm-generic/socket.h; past the limit net.core.rmem_max, with CAP_NET_ADMIN.
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 8 << 20
"""A limit, not an allocation: ten times the 5,000 elements of one transaction of kube-proxy's."""
_DATAGRAM_BYTES = 1 << 17


class NetlinkRefusedError(ApplyError):
    """The kernel rejected a request."""

    def __init__(self, errno: int, what: str) -> None:
        super().__init__(f"{what}: {os.strerror(errno)}")
        self.errno = errno


class Link(Struct, frozen=True):
    """A network interface: `kind` is empty for hardware, `alias` for most."""

    kind: str
    alias: str
    up: bool


class KernelAddress(Struct, frozen=True):
    """An address as the kernel lists it."""

    address: IPAddress
    prefix_length: int
    interface: str
    label: str = ""
    flags: int = 0


class Netlink:
    """Requests about links and addresses; listing needs no privilege, changing needs CAP_NET_ADMIN."""

    def __init__(self, route: Any) -> None:  # noqa: ANN401 - an IPRoute; pyroute2 has no types
        self._route = route

    def link(self, name: str) -> Link | None:
        """Return the interface, or None. Asks only for it: a node has hundreds, one per pod."""
        try:
            with _explained(f"show {name}"):
                (message,) = self._route.link("get", index=_index(name))
        except NetlinkRefusedError as error:
            if error.errno == ENODEV:
                return None
            raise
        return Link(
            kind=message.get(("linkinfo", "kind")) or "",
            alias=message.get("ifalias") or "",
            up=bool(message["flags"] & _IFF_UP),
        )

    def addresses(self) -> list[KernelAddress]:
        """Return all addresses of both families, as they were at one moment."""
        for _ in range(_LISTINGS):
            with _explained("list the addresses"):
                dump = list(self._route.addr("dump"))
            if not any(entry["header"]["flags"] & _DUMP_INTERRUPTED for entry in dump):
                names = dict(socket.if_nameindex())
                # The addresses of an interface deleted between the two listings are gone, too.
                return [_address(entry, names[entry["index"]]) for entry in dump if entry["index"] in names]
        raise NetlinkRefusedError(EINTR, "the kernel did not list the addresses")

    def make(self, name: str, kind: str, alias: str) -> None:
        """Make a device with this alias and set it up, or nothing. EOPNOTSUPP: there is no such kind."""
        with _explained(f"make the {kind} device {name}"):
            self._route.link("add", ifname=name, kind=kind)
        try:
            self.set_up(name, ifalias=alias)
        except NetlinkRefusedError:
            self.delete(name)
            raise

    def set_up(self, name: str, **attributes: str) -> None:
        with _explained(f"set up {name}"):
            self._route.link("set", index=_index(name), state="up", **attributes)

    def delete(self, name: str) -> None:
        """Delete a device with all of its addresses; succeeds if there is none."""
        with _explained(f"delete {name}", ENODEV):
            self._route.link("del", index=_index(name))

    def add(self, address: IPAddress, name: str, attributes: Mapping[str, object]) -> None:
        """Put a host's address on a device, and wait for IPv6's route; succeeds if it exists."""
        with _explained(f"add {address} on {name}", EEXIST):
            self._route.addr(
                "add", index=_index(name), address=str(address), prefixlen=address.max_prefixlen, **attributes
            )
        if isinstance(address, IPv6Address):
            _await_route(address, name)

    def remove(self, address: IPAddress, prefix_length: int, name: str) -> None:
        """Remove an address; succeeds if it, or its device, does not exist."""
        with _explained(f"remove {address} from {name}", EADDRNOTAVAIL, ENODEV):
            self._route.addr("del", index=_index(name), address=str(address), prefixlen=prefix_length)


@contextmanager
def opened() -> Iterator[Netlink]:
    """Yield a netlink socket. Raises ApplyError if none is available."""
    from pyroute2 import IPRoute  # noqa: PLC0415 - loaded where it is used

    try:
        route = IPRoute()
    except OSError as error:
        raise ApplyError(f"no netlink socket to read this node's addresses: {error.strerror}.") from error
    with route:
        yield Netlink(route)


def tcp_sockets(states: Iterable[int]) -> list[Any]:
    """Return the TCP sockets in these states as pyroute2's `inet_diag_msg`; none without tcp_diag."""
    from pyroute2.netlink.diag import DiagSocket  # noqa: PLC0415 - see `opened`

    mask = sum(1 << state for state in states)
    with DiagSocket() as diag:
        diag.bind()
        families = (socket.AF_INET, socket.AF_INET6)
        return [message for family in families for message in diag.get_sock_stats(family=family, states=mask)]


def end_tcp(sockets: Sequence[Any]) -> None:
    """Abort those that still exist. Raises OSError: EPERM; EOPNOTSUPP without INET_DIAG_DESTROY."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as diag:
        for first in range(0, len(sockets), _DESTROYED_AT_ONCE):
            diag.send(b"".join(map(_ending, sockets[first : first + _DESTROYED_AT_ONCE])))
            while (answer := _waiting(diag)) is not None:
                (error,) = _ERROR.unpack_from(answer)
                if -error != ENOENT:
                    raise OSError(-error, os.strerror(-error))


def _waiting(source: Any) -> bytes | None:  # noqa: ANN401 - a socket, or pyroute2's, which has no types
    try:
        return bytes(source.recv(_DATAGRAM_BYTES, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return None


def _ending(message: Any) -> bytes:  # noqa: ANN401 - pyroute2 has no types
    # With the cookie, so that it is this socket and no later one: without, the one that listens might be it.
    ports = (message[name].to_bytes(2, "big") for name in ("idiag_sport", "idiag_dport"))
    ends = (ip_address(message[name]).packed for name in ("idiag_src", "idiag_dst"))
    head = (_DESTROY.size, _SOCK_DESTROY, _REQUEST, message["idiag_family"], socket.IPPROTO_TCP)
    return _DESTROY.pack(
        *head, 1 << message["idiag_state"], *ports, *ends, message["idiag_if"], message["idiag_cookie"]
    )


class Notifications:
    """The base of a `component.Watch`; only `relevant` datagrams are decoded, at 0.2 ms a message."""

    seconds = math.inf

    def __init__(
        self,
        source: Any,  # noqa: ANN401 - pyroute2 has no types
        groups: Iterable[int],
        relevant: Callable[[bytes], bool] = lambda _: True,
    ) -> None:
        self._source = source
        self._relevant = relevant
        try:
            try:
                source.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
            except PermissionError:
                # As much as an ordinary user gets; the kernel limits it to rmem_max.
                source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            # Not by the groups of bind(): for any error of the kernel's, it raises KeyError.
            source.bind(groups=0)
            for group in groups:
                source.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
        except Exception:
            source.close()
            raise

    def fileno(self) -> int:
        return int(self._source.fileno())

    def close(self) -> None:
        self._source.close()

    def messages(self) -> Iterator[Any]:
        """Return what has arrived, without waiting, as pyroute2 decodes it. Raises OSError."""
        while (datagram := _waiting(self._source)) is not None:
            if self._relevant(datagram):
                yield from self._source.marshal.parse(datagram)


def address_socket() -> Any:  # noqa: ANN401 - pyroute2 has no types
    """Return pyroute2's socket for notifications of the kernel's."""
    from pyroute2 import IPRSocket  # noqa: PLC0415 - see `opened`

    return IPRSocket()


def nftables_socket() -> Any:  # noqa: ANN401 - pyroute2 has no types
    """Return one for those about nftables' transactions; of an object, only the table's name is decoded."""
    from pyroute2.netlink.nfnetlink import nfgen_msg  # noqa: PLC0415 - see `opened`
    from pyroute2.netlink.nfnetlink.nftsocket import nft_gen_msg  # noqa: PLC0415
    from pyroute2.netlink.nlsocket import NetlinkSocket  # noqa: PLC0415

    class NftablesObject(nfgen_msg):  # type: ignore[misc] # no types
        nla_map = (("UNSPEC", "none"), ("TABLE", "asciiz"))

    source = NetlinkSocket(family=_NETLINK_NETFILTER)
    source.register_policy({_NFTABLES | kind: NftablesObject for kind in range(_KINDS)})
    source.register_policy(_NFTABLES | _NEWGEN, nft_gen_msg)
    return source


def _address(message: Any, interface: str) -> KernelAddress:  # noqa: ANN401 - pyroute2 has no types
    # IFA_LOCAL is this end of a point-to-point link, IFA_ADDRESS the other; IPv6 has it only for these.
    flags = message.get_attr("IFA_FLAGS")
    return KernelAddress(
        address=ip_address(message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")),
        prefix_length=message["prefixlen"],
        interface=interface,
        label=message.get_attr("IFA_LABEL") or "",
        flags=message["flags"] if flags is None else flags,
    )


def _await_route(address: IPv6Address, name: str) -> None:
    """Wait for the route: a work queue makes it (addrconf_dad_work()), and connections fail until then."""
    deadline = time.monotonic() + _ROUTE_SECONDS
    host = f"{address.packed.hex()} 80 "
    while True:
        lines = _IPV6_ROUTES.read_text(encoding="ascii").splitlines()
        if any(line.startswith(host) and line.split()[-1] == name for line in lines):
            return
        if time.monotonic() > deadline:
            raise NetlinkRefusedError(ETIMEDOUT, f"{address} is on {name}, but there is no route to it")
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def _explained(request: str, *accepted: int) -> Iterator[None]:
    """Turn an error of the kernel into one that names the request; ignore it with an accepted number."""
    from pyroute2 import NetlinkError  # noqa: PLC0415 - see `opened`

    try:
        yield
    except NetlinkRefusedError as error:
        if error.errno not in accepted:
            raise
    except (NetlinkError, OSError) as error:
        code = error.errno if isinstance(error, OSError) else error.code
        if code not in accepted:
            raise NetlinkRefusedError(code or 0, f"the kernel did not {request}") from error


def _index(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError as error:
        raise NetlinkRefusedError(ENODEV, f"there is no device {name}") from error
