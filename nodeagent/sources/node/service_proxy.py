"""Which addresses this node's Service proxy short-circuits, by its rules in the kernel. EFFECTS: reads only.

kube-proxy is recognized by its own names: the map `service-ips` of the nftables mode (proxier.go in
pkg/proxy/nftables), the chain `KUBE-SERVICES` of the iptables mode, in nf_tables (iptables-nft) or in legacy
xtables, and the addresses on `kube-ipvs0` of the ipvs mode; kube-router's are on `kube-dummy-if`.
Data planes without such rules (Cilium's BPF maps, OVN's and Antrea's flows) can't be seen here.
"""

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from msgspec import Struct

from nodeagent.errors import one_line
from nodeagent.linux.programs import find_program, run_program
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.facts import InterfaceAddress

Mode = Literal["nftables", "iptables", "ipvs"]
_IPVS_DEVICE = "kube-ipvs0"
_IPVS_INTERFACES = frozenset({_IPVS_DEVICE, "kube-dummy-if"})
_SECONDS = 10.0
_ABSENT = "No such file or directory"
# In nft's JSON, an address is a separate string, in a map's key or a rule. Protocol and port follow.
_QUOTED_ADDRESS = re.compile(
    r'"((?:\d+\.){3}\d+|[0-9a-f]*:[0-9a-f:.]*)"'
    r'(?:, "(\w+)", (\d+)|'
    r'\}\}(?:(?!"rule":).){0,1000}?"protocol": "(\w+)", "field": "dport"\}\}, "right": (\d+))?'
)
_DESTINATION = re.compile(
    r"^-A KUBE-SERVICES(?: \S+)*? -d ([0-9a-f.:]+)/(?:32|128) (?:-p (\w+) (?:.* )?--dport (\d+) )?",
    re.MULTILINE,
)
_ANY_PORT = 0
"""A rule whose port is not seen counts for every port."""


@dataclass(frozen=True, slots=True)
class ServiceRules:
    """Which of the given addresses are short-circuited, and notes on rules that could not be read."""

    caught: frozenset[IPAddress] = frozenset()
    notes: tuple[str, ...] = ()

    def after(self, earlier: frozenset[IPAddress]) -> "ServiceRules":
        """Return the same; if not all could be read, what was caught earlier still counts (fail static)."""
        return replace(self, caught=self.caught | earlier) if self.notes else self


def caught_addresses(wanted: Iterable[Endpoint], standing: Iterable[InterfaceAddress]) -> ServiceRules:
    """Return at which of `wanted` this node's Service proxy short-circuits; read nothing if there are none.

    A rule for another port of the address shows nothing: anyone who can write a Service can have one made, by
    `externalIPs`.

    Args:
        wanted: addresses and TCP ports of load balancers.
        standing: the addresses on this node's interfaces.
    """
    looked_for = frozenset(wanted)
    if not looked_for:
        return ServiceRules()
    rules, unreadable = _rules()
    devices = {Endpoint(each.address, _ANY_PORT) for each in standing if each.interface in _IPVS_INTERFACES}
    found = devices.union(*rules.values())
    caught = {each.address for each in looked_for if found & {each, Endpoint(each.address, _ANY_PORT)}}
    notes = (f"ipMode: Proxy is believed where this node's rules can't be read: {why}" for why in unreadable)
    return ServiceRules(frozenset(caught), tuple(notes))


def _rules() -> tuple[dict[tuple[Mode, str], frozenset[Endpoint]], list[str]]:
    """Return what kube-proxy's rules name, by its mode and the evidence, and what could not be read."""
    found: dict[tuple[Mode, str], frozenset[Endpoint]] = {}
    unreadable: dict[str, None] = {}
    readers: tuple[tuple[Mode, str, Callable[[], frozenset[Endpoint] | None]], ...] = (
        ("nftables", "table kube-proxy in nftables", lambda: _nft("map", "kube-proxy", "service-ips")),
        ("iptables", "chain KUBE-SERVICES of iptables-nft", iptables_nft_addresses),
        ("iptables", "chain KUBE-SERVICES of iptables-legacy", iptables_legacy_addresses),
    )
    for mode, evidence, read in readers:
        try:
            addresses = read()
        except UnreadableRulesError as error:
            unreadable[str(error)] = None
        else:
            if addresses is not None:
                found[mode, evidence] = addresses
    return found, list(unreadable)


def iptables_nft_addresses() -> frozenset[Endpoint] | None:
    """Return those of kube-proxy in iptables mode, by iptables-nft; None if it has no such rules."""
    return _nft("chain", "nat", "KUBE-SERVICES")


def iptables_legacy_addresses(proc_net: Path = Path("/proc/self/net")) -> frozenset[Endpoint] | None:
    """Return those of kube-proxy in iptables mode, in legacy xtables; None if it has no such rules.

    If the kernel has no legacy nat table, nothing is run: iptables-legacy-save would create one.
    """
    found: frozenset[Endpoint] | None = None
    for tables, program in (
        ("ip_tables_names", "iptables-legacy-save"),
        ("ip6_tables_names", "ip6tables-legacy-save"),
    ):
        try:
            names = (proc_net / tables).read_text(encoding="ascii").split()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UnreadableRulesError(f"/proc/net/{tables}: {error.strerror}") from error
        if "nat" not in names:
            continue
        text = _run([program, "-t", "nat"])
        if text and ":KUBE-SERVICES " in text:
            found = (found or frozenset()) | frozenset(_endpoints(_DESTINATION.findall(text)))
    return found


class UnreadableRulesError(Exception):
    """Rules that may exist can't be read; the text says which and why."""


def _nft(kind: str, table: str, name: str) -> frozenset[Endpoint] | None:
    found: frozenset[Endpoint] | None = None
    for family in ("ip", "ip6"):
        text = _run(["nft", "-j", "list", kind, family, table, name])
        if text is not None:
            found = (found or frozenset()) | frozenset(_endpoints(_QUOTED_ADDRESS.findall(text)))
    return found


def _endpoints(matches: Iterable[tuple[str, ...]]) -> Iterator[Endpoint]:
    """Yield what rules name, except other protocols: each an address, and maybe a protocol and a port."""
    for address, *rest in matches:
        protocol, port = [*filter(None, rest), "", ""][:2]
        if protocol in {"", "tcp"}:
            yield Endpoint(ip_address(address), int(port or _ANY_PORT))


def _run(command: list[str]) -> str | None:
    """Return what the program prints; None if what it should list does not exist."""
    program = find_program(command[0])
    if program is None:
        raise UnreadableRulesError(f"there is no {command[0]} program")
    try:
        done = run_program([program, *command[1:]], _SECONDS)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise UnreadableRulesError(f"{command[0]}: {one_line(error)}") from error
    if done.returncode == 0:
        return done.stdout.decode(errors="replace")
    message = one_line(done.stderr.decode(errors="replace").partition("\n")[0])
    if _ABSENT in message:
        return None
    raise UnreadableRulesError(f"{' '.join(command)}: {message}")


class KubeProxy(Struct, frozen=True):
    """The actual rules.

    Attributes:
        modes: kube-proxy's modes with rules or devices here, each with the evidence: usually one.
        held: the addresses that these rules translate; None if some rules could not be read.
        unreadable: which rules could not be read, and why; empty if all were.
    """

    modes: tuple[tuple[Mode, str], ...] = ()
    held: frozenset[IPAddress] | None = frozenset()
    unreadable: str = ""


def read_kube_proxy(standing: Iterable[InterfaceAddress]) -> KubeProxy:
    """Read; change nothing. Only root may read rules: without root, only the ipvs device is seen.

    Args:
        standing: the addresses on this node's interfaces.
    """
    rules, unreadable = _rules()
    ipvs = frozenset(each.address for each in standing if each.interface == _IPVS_DEVICE)
    on_device: tuple[Mode, str] = ("ipvs", f"addresses on {_IPVS_DEVICE}")
    return KubeProxy(
        # In mode ipvs, the chain KUBE-SERVICES of iptables only marks what is masqueraded.
        modes=(*(each for each in rules if each[0] != "iptables"), on_device) if ipvs else (*rules,),
        held=None if unreadable else ipvs | {each.address for found in rules.values() for each in found},
        unreadable="; ".join(unreadable),
    )
