"""Kube-proxy's mode here, and what else translates, by what stands in the kernel. EFFECTS: reads."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nodeagent.model.addresses import IPAddress
from nodeagent.model.facts import InterfaceAddress
from nodeagent.sources.node.programs import said
from nodeagent.sources.node.service_rules import (
    UnreadableRulesError,
    iptables_legacy_addresses,
    iptables_nft_addresses,
    nftables_addresses,
)

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


@dataclass(frozen=True, slots=True)
class KubeProxy:
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
    """Reads; changes nothing. Root alone may read rules: without it only the ipvs device is seen.

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
    listing = said("nft", "-j", "list", "chains")
    return base_chains(listing) if listing else ()
