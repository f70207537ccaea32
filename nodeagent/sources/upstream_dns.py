"""The DNS servers that this node queries, and lookups at them.

systemd-resolved's stub listeners answer from /etc/hosts before they ask a server (dns_query_try_etc_hosts in
resolved-dns-query.c; 127.0.0.54 looks there, too, despite its "bypass" mode), so nodeagent's own lines would
verify themselves: the servers behind them are queried instead, which resolved lists in a file of its own
(systemd-resolved.service(8), "/etc/resolv.conf"). Another resolver on this host (unbound, NetworkManager's
dnsmasq) may be as good as any; the verification notices if it answers with the relay's own address.
"""

import os
import posixpath
from collections.abc import Mapping
from contextlib import suppress
from errno import ELOOP
from functools import cache, partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nodeagent.config.option_types import DNS_PORT
from nodeagent.config.options import HostsOptions
from nodeagent.dns.verifier import Ask, DnsVerifier
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.facts import DnsAnswer, DnsQuestion, Upstreams

if TYPE_CHECKING:
    from nodeagent.dns.lookup import Resolver

_STUBS = ("127.0.0.53", "127.0.0.54")
_MOST_SERVERS = 3
"""As many as the C libraries query (resolv.conf(5), MAXNS)."""
_MOST_LINKS = 40  # as Linux (MAXSYMLINKS)
_RESOLVED = "run/systemd/resolve/resolv.conf"
_ONCE_SECONDS: Final = 10.0
_OWN = Path("/etc/resolv.conf")


def find_upstreams(options: HostsOptions, own: Path = _OWN) -> Upstreams:
    """Return the servers to query now; reads up to four small files each time, so that no change is missed.

    The first source that names a server decides: `hosts.dnsServers`; resolv.conf next to `hosts.file`; the
    servers behind the node's systemd-resolved. If the node's /etc is not this process's own, then the same
    two of this process: the kubelet makes its `own` resolv.conf from the node's (dnsPolicy: Default), unless
    it is for the cluster's DNS.
    """
    if options.dns_servers:
        return Upstreams(tuple(server.endpoint for server in options.dns_servers))
    node = Path(options.file).with_name("resolv.conf")
    problems = []
    for resolv_conf in dict.fromkeys((node, own)):
        root = resolv_conf.parent.parent
        cluster_domain = "" if resolv_conf == node else options.cluster_domain
        for source in (_read_list(resolv_conf, root, cluster_domain), _read_list(root / _RESOLVED, root)):
            if source.servers:
                return source
            problems.append(source.problem)
    return Upstreams(problem=f"no DNS server can be queried ({'; '.join(problems)}): set hosts.dnsServers")


def _read_list(file: Path, root: Path, cluster_domain: str = "") -> Upstreams:
    """Return the servers of a resolv.conf (resolv.conf(5)); invalid addresses are ignored.

    None are left of one that the kubelet made for the cluster's DNS, as its search list shows.
    """
    try:
        text = _followed(file, root).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return Upstreams(problem=f"{file} can't be read: {error.strerror}")
    named: list[IPAddress] = []
    search: list[str] = []
    for keyword, *values in filter(None, map(str.split, text.splitlines())):
        if keyword == "nameserver" and values:
            with suppress(ValueError):
                named.append(ip_address(values[0]))
        elif keyword in {"search", "domain"}:
            search = [value.rstrip(".").lower() for value in values]
    if cluster_domain and f"svc.{cluster_domain}" in search:
        return Upstreams(problem=f"{file} names the cluster's own DNS")
    servers = [address for address in dict.fromkeys(named) if str(address) not in _STUBS]
    if servers:
        return Upstreams(tuple(Endpoint(address, DNS_PORT) for address in servers[:_MOST_SERVERS]))
    only_stub = "only systemd-resolved's stub, which answers from /etc/hosts"
    return Upstreams(problem=f"{file} names {only_stub if named else 'no server'}")


def _followed(file: Path, root: Path) -> Path:
    """Return the file to which the link `file` points on the node, whose root directory is `root` here."""
    for _ in range(_MOST_LINKS):
        try:
            target = os.readlink(file)  # noqa: PTH115 - text, joined below as the node would
        except OSError:
            return file  # Not a link, or missing: opening it shows which.
        place = posixpath.join("/", file.parent.relative_to(root), target)
        file = root / posixpath.normpath(place).lstrip("/")
    raise OSError(ELOOP, os.strerror(ELOOP))  # Opened, it would lead out of `root`.


def ask_upstream(options: HostsOptions) -> Ask:
    """Return the function that looks up one hostname; it determines the servers for each."""

    @cache
    def resolver() -> "Resolver":
        # Without lookups, dnspython costs neither time to import nor memory.
        from nodeagent.dns.lookup import Resolver  # noqa: PLC0415

        return Resolver(partial(find_upstreams, options))

    return lambda name: resolver().ask(name)


def ask_once(wanted: Mapping[str, DnsQuestion], options: HostsOptions) -> Mapping[str, DnsAnswer]:
    """Look up all of the hostnames, for ten seconds at most; those left over are not in the answer."""
    verifier = DnsVerifier(ask_upstream(options), options.dns_recheck_seconds)
    try:
        verifier.want(wanted)
        verifier.await_answers(_ONCE_SECONDS)
        return verifier.answers()
    finally:
        verifier.stop()
