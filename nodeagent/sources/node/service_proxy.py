"""Which addresses this node's Service proxy catches, from its rules in the kernel. EFFECTS; changes nothing.

kube-proxy is recognised by what it names its own: the map `service-ips` of the nftables mode (proxier.go in
pkg/proxy/nftables), the chain `KUBE-SERVICES` of the iptables mode, in nf_tables (iptables-nft) or in legacy
xtables, and the addresses on `kube-ipvs0` of the ipvs mode; kube-router's are on `kube-dummy-if`.
Data planes that keep no such rules (Cilium's BPF maps, OVN's and Antrea's flows) can't be seen here.
"""

import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from msgspec import Struct

from nodeagent.errors import one_line
from nodeagent.model.addresses import IPAddress
from nodeagent.model.facts import InterfaceAddress
from nodeagent.programs import find_program, run_program

_IPVS_INTERFACES = frozenset({"kube-ipvs0", "kube-dummy-if"})
_SECONDS = 10.0
_ABSENT = "No such file or directory"
# In nft's JSON an address is a string of its own: a map's key, or what a rule compares with.
_QUOTED_ADDRESS = re.compile(r'"((?:\d+\.){3}\d+|[0-9a-f]*:[0-9a-f:.]*)"')
_DESTINATION = re.compile(r"^-A KUBE-SERVICES(?: \S+)*? -d ([0-9a-f.:]+)/(?:32|128) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ServiceRules:
    """What of the addresses asked for is caught, and notes on rules that could not be read."""

    caught: frozenset[IPAddress] = frozenset()
    notes: tuple[str, ...] = ()

    def after(self, earlier: "ServiceRules") -> "ServiceRules":
        """Return the same; where not all could be read, what was seen before still counts (fail static)."""
        return replace(self, caught=self.caught | earlier.caught) if self.notes else self


def caught_addresses(wanted: Iterable[IPAddress], standing: Iterable[InterfaceAddress]) -> ServiceRules:
    """Which of `wanted` this node's Service proxy catches; reads nothing where none is wanted.

    Args:
        wanted: addresses of load balancers.
        standing: the addresses on this node's interfaces.
    """
    looked_for = frozenset(wanted)
    if not looked_for:
        return ServiceRules()
    found = {each.address for each in standing if each.interface in _IPVS_INTERFACES}
    notes = []
    for read in (nftables_addresses, iptables_nft_addresses, iptables_legacy_addresses):
        try:
            found |= read() or frozenset()
        except UnreadableRulesError as error:
            notes.append(f"ipMode: Proxy is believed where this node's rules can't be read: {error}")
    return ServiceRules(frozenset(looked_for & found), tuple(dict.fromkeys(notes)))


def nftables_addresses() -> frozenset[IPAddress] | None:
    """Those that kube-proxy in nftables mode catches; None where it has no rules of that kind."""
    return _nft(("map", "kube-proxy", "service-ips"))


def iptables_nft_addresses() -> frozenset[IPAddress] | None:
    """Those that kube-proxy in iptables mode catches by iptables-nft; None where it has no such rules."""
    return _nft(("chain", "nat", "KUBE-SERVICES"))


def iptables_legacy_addresses(proc_net: Path = Path("/proc/self/net")) -> frozenset[IPAddress] | None:
    """Those that kube-proxy in iptables mode catches in legacy xtables; None where it has no such rules.

    Where the kernel has no legacy nat table nothing is run: iptables-legacy-save would make one.
    """
    found: frozenset[IPAddress] | None = None
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
            found = (found or frozenset()) | frozenset(map(ip_address, _DESTINATION.findall(text)))
    return found


class UnreadableRulesError(Exception):
    """Rules that are perhaps there can't be read; the text says which and why."""


def _nft(thing: tuple[str, str, str]) -> frozenset[IPAddress] | None:
    kind, table, name = thing
    found: frozenset[IPAddress] | None = None
    for family in ("ip", "ip6"):
        text = _run(["nft", "-j", "list", kind, family, table, name])
        if text is not None:
            found = (found or frozenset()) | frozenset(map(ip_address, _QUOTED_ADDRESS.findall(text)))
    return found


def _run(command: list[str]) -> str | None:
    """Return what the program prints; None where what it is asked for is not there."""
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


# Kube-proxy's mode here, and what else translates, by what stands in the kernel. EFFECTS: reads.


Mode = Literal["nftables", "iptables", "ipvs"]
_IPVS_DEVICE = "kube-ipvs0"


@dataclass(frozen=True, slots=True)
class BaseChain:
    """A chain of nftables that hooks into the translation of addresses; a lower priority runs first."""

    family: str
    table: str
    name: str
    hook: str
    priority: int


class KubeProxy(Struct, frozen=True):
    """What stands.

    Attributes:
        modes: kube-proxy's modes of which something stands, each with the evidence: one, usually.
        held: the addresses that these rules translate; None where some rules could not be read.
        chains: every base chain of nftables that translates.
        unreadable: which rules could not be read, and why; empty when all were.
    """

    modes: tuple[tuple[Mode, str], ...] = ()
    held: frozenset[IPAddress] | None = frozenset()
    chains: tuple[BaseChain, ...] = ()
    unreadable: str = ""


def read_kube_proxy(standing: Iterable[InterfaceAddress]) -> KubeProxy:
    """Read; changes nothing. Root alone may read rules: without it only the ipvs device is seen.

    Args:
        standing: the addresses on this node's interfaces.
    """
    modes: list[tuple[Mode, str]] = []
    held: set[IPAddress] = set()
    unreadable = []
    kinds: tuple[tuple[Mode, str], ...] = (
        ("nftables", "table kube-proxy in nftables"),
        ("iptables", "chain KUBE-SERVICES of iptables-nft"),
        ("iptables", "chain KUBE-SERVICES of iptables-legacy"),
    )
    readers = (nftables_addresses, iptables_nft_addresses, iptables_legacy_addresses)
    for kind, read in zip(kinds, readers, strict=True):
        try:
            found = read()
        except UnreadableRulesError as error:
            unreadable.append(str(error))
        else:
            if found is not None:
                modes.append(kind)
                held |= found
    ipvs = {each.address for each in standing if each.interface == _IPVS_DEVICE}
    if ipvs:
        modes.append(("ipvs", f"addresses on {_IPVS_DEVICE}"))
    return KubeProxy(
        modes=tuple(modes),
        held=None if unreadable else frozenset(held | ipvs),
        chains=_chains(),
        unreadable="; ".join(dict.fromkeys(unreadable)),
    )


def base_chains(listing: str) -> tuple[BaseChain, ...]:
    """Pure: the base chains of type nat in the answer to `nft -j list chains` (libnftables-json(5))."""
    chains = (item["chain"] for item in json.loads(listing)["nftables"] if "chain" in item)
    return tuple(
        BaseChain(chain["family"], chain["table"], chain["name"], chain["hook"], int(chain["prio"]))
        for chain in chains
        if chain.get("type") == "nat" and "prio" in chain
    )


def _chains() -> tuple[BaseChain, ...]:
    try:
        listing = _run(["nft", "-j", "list", "chains"])
    except UnreadableRulesError:
        return ()  # `read_kube_proxy` says so of the rules
    return base_chains(listing) if listing else ()
