"""How this node resolves hostnames: the DNS servers that may be queried, and what the C library answers.

systemd-resolved's stub listeners answer from /etc/hosts before they ask a server (dns_query_try_etc_hosts in
resolved-dns-query.c; 127.0.0.54 looks there, too, despite its "bypass" mode), so nodeagent's own lines would
verify themselves. nodeagent never queries the stubs, but the servers behind them, which resolved lists in a
file of its own (systemd-resolved.service(8), "/etc/resolv.conf"). Another resolver on this host (127.0.0.1:
unbound, bind, NetworkManager's dnsmasq) may be as good as any and is queried; the verification notices if it
answers with the relay's own address.
"""

import os
import posixpath
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path

from msgspec import Struct

from nodeagent.config.option_types import DNS_PORT
from nodeagent.config.options import HostsOptions
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.node_files import hosts_fields, parse_resolv_conf

_STUBS = ("127.0.0.53", "127.0.0.54")
_MOST_SERVERS = 3
"""As many as the C libraries query (resolv.conf(5), MAXNS)."""
_MOST_LINKS = 8
_RESOLVED = "run/systemd/resolve/resolv.conf"
_OWN = Path("/etc/resolv.conf")


class Upstreams(Struct, frozen=True):
    """The servers in their order; `problem` says why there is none, and what to do."""

    servers: tuple[Endpoint, ...] = ()
    problem: str = ""


class _Listed(Struct, frozen=True):
    """The content of one resolv.conf: servers that may be queried, and why there are none or not all."""

    servers: tuple[Endpoint, ...]
    searched: tuple[str, ...] = ()
    why_none: str = ""


def find_upstreams(options: HostsOptions, own: Path = _OWN) -> Upstreams:
    """Return the servers to query now.

    Reads up to three small files each time, so that a change is never missed.

    The first source that names a server decides: `hosts.dnsServers`; resolv.conf next to `hosts.file`,
    whose links are followed as the node would follow them; the servers behind the node's systemd-resolved.
    If the node's /etc is not this process's own, and there is none: the same two of this process. The
    kubelet makes its `own` resolv.conf from the node's (dnsPolicy: Default), unless it is for the cluster's
    DNS.
    """
    if options.dns_servers:
        return Upstreams(tuple(server.endpoint for server in options.dns_servers))
    node = Path(options.file).with_name("resolv.conf")
    tried = [_read(node), _read_behind_resolved(node)]
    if node != own:
        tried += [_without_cluster(_read(own), options.cluster_domain), _read_behind_resolved(own)]
    for found in tried:
        if found.servers:
            return Upstreams(found.servers)
    reasons = "; ".join(found.why_none for found in tried)
    return Upstreams(problem=f"no DNS server can be queried ({reasons}): set hosts.dnsServers")


def _read_behind_resolved(resolv_conf: Path) -> _Listed:
    """Return the servers that systemd-resolved queries, below the directory whose /etc has `resolv_conf`."""
    return _read(resolv_conf.parent.parent / _RESOLVED, resolv_conf.parent.parent)


def _read(file: Path, root: Path | None = None) -> _Listed:
    try:
        text = _followed(file, root or file.parent.parent).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return _Listed((), why_none=f"{file} can't be read: {error.strerror}")
    return _parse(text, str(file))


def _followed(file: Path, root: Path) -> Path:
    """Return the file to which the link `file` points on the node, whose root directory is `root` here.

    In a container the node's /etc is mounted elsewhere: a link to /run/... means the node's /run.
    """
    for _ in range(_MOST_LINKS):
        try:
            target = os.readlink(file)  # noqa: PTH115 - text, joined below as the node would
        except OSError:
            return file  # Not a link, or missing: opening it shows which.
        place = posixpath.join("/", file.parent.relative_to(root), target)
        file = root / posixpath.normpath(place).lstrip("/")
    return file


def _parse(text: str, file: str) -> _Listed:
    """Return the servers of a resolv.conf (resolv.conf(5)); invalid addresses are ignored. Pure."""
    found = parse_resolv_conf(text)
    named = [server for server in found.servers if _is_address(server)]
    asked = [address for address in named if address not in _STUBS]
    if asked:
        why_none = ""
    elif named:
        why_none = f"{file} names only systemd-resolved's stub, which answers from /etc/hosts"
    else:
        why_none = f"{file} names no server"
    return _Listed(_endpoints(asked), found.search, why_none)


def _without_cluster(listed: _Listed, cluster_domain: str) -> _Listed:
    """Remove the servers if the search list shows that the kubelet made it for the cluster's DNS. Pure."""
    if f"svc.{cluster_domain}" not in listed.searched:
        return listed
    return _Listed((), why_none=f"{_OWN} names the cluster's own DNS")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _endpoints(addresses: Iterable[str]) -> tuple[Endpoint, ...]:
    found = dict.fromkeys(ip_address(address) for address in addresses)
    return tuple(Endpoint(address, DNS_PORT) for address in found)[:_MOST_SERVERS]


# The answer that this host's own programs get for a hostname: from the C library's resolver, with the hosts
# file.


_OWN_HOSTS = Path("/etc/hosts")
_AT_ONCE = 16


class HostResolver:
    """Resolves as the node's programs do, from within a container, too.

    Args:
        hosts_file: The node's hosts file. If that is not this process's own (in a container, which has the
            node's /etc elsewhere), it is read here, before the C library is asked.
    """

    def __init__(self, hosts_file: Path) -> None:
        self._foreign = None if hosts_file == _OWN_HOSTS else hosts_file

    def resolve(self, name: str) -> tuple[IPAddress, ...]:
        """Return the addresses in the order in which a program tries them.

        Empty for none, whatever the reason.
        """
        if self._foreign is not None and (found := _in_hosts_file(name, self._foreign)):
            return found
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            # UnicodeError: a label that IDNA can't encode.
            return ()
        return tuple(dict.fromkeys(ip_address(str(answer[4][0]).partition("%")[0]) for answer in answers))

    def resolve_all(self, names: Iterable[str]) -> dict[str, tuple[IPAddress, ...]]:
        """Return the same for many hostnames at a time: a dead DNS server costs its time only once."""
        wanted = list(dict.fromkeys(names))
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            return dict(zip(wanted, pool.map(self.resolve, wanted), strict=True))


def _in_hosts_file(name: str, file: Path) -> tuple[IPAddress, ...]:
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return ()
    found: dict[IPAddress, None] = {}
    for line in lines:
        address, names = hosts_fields(line)
        if name.lower() in names:
            try:
                found[ip_address(address)] = None
            except ValueError:
                continue  # not an address: such a line sets nothing
    return tuple(found)
