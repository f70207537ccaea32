"""Over what the tests run: backend x families x shape of kube-proxy's rules, 15 combinations of 18.

Three are left out: legacy iptables next to a kube-proxy that writes nftables. Both hook at priority -100, and
of equals the one that was registered last runs first (nf_hook_entries_grow()): a table that kube-proxy makes
again takes its traffic back. Such a kernel has nf_tables, and `auto` takes that.

Every test runs over all of them with `make test-matrix`. By default, those whose outcome is a packet's way
run over nine in which any two values meet (`in_pairs`), and the others over four in which each value is used
(`in_a_few`), or two, or one: the rest has the mark `matrix`, which is not chosen by default.
"""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeAlias, get_args

import pytest

from tests.testbed.addresses import STACKS, Stack
from tests.testbed.kube_proxy import KUBE_PROXY_KINDS, KubeProxyKind

Backend: TypeAlias = Literal["nftables", "iptables"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)


@dataclass(frozen=True)
class Combination:
    """By what nodeagent redirects, the world's families, and how kube-proxy writes its rules."""

    backend: Backend
    family: Stack
    kube_proxy: KubeProxyKind

    def __str__(self) -> str:
        return f"{self.backend}-{self.family}-kube-proxy-{self.kube_proxy}"


USUAL = Combination("nftables", 4, "nftables")
MATRIX = tuple(
    Combination(*each)
    for each in product(BACKENDS, STACKS, KUBE_PROXY_KINDS)
    if (each[0], each[2]) != ("iptables", "nftables")
)
_FEW = (
    USUAL,
    Combination("nftables", "dual", "iptables-legacy"),
    Combination("iptables", 6, "iptables-legacy"),
    Combination("iptables", "dual", "iptables-nft"),
)
_PAIRS = (
    *_FEW,
    Combination("nftables", 6, "nftables"),
    Combination("nftables", "dual", "nftables"),
    Combination("iptables", 4, "iptables-legacy"),
    Combination("nftables", 4, "iptables-nft"),
    Combination("nftables", 6, "iptables-nft"),
)


def _over(usual: Collection[Combination]) -> pytest.MarkDecorator:
    """A mark that runs tests, or a module's, over the matrix, by default over these combinations of it."""
    params = [
        pytest.param(each, id=str(each), marks=() if each in usual else pytest.mark.matrix) for each in MATRIX
    ]
    return pytest.mark.parametrize("combination", params, indirect=True, scope="module")


in_pairs = _over(_PAIRS)
in_a_few = _over(_FEW)
in_two = _over([USUAL, Combination("iptables", "dual", "iptables-nft")])
"""One with each backend, and with one and two families, for what the rest has little part in."""
in_one = _over([Combination("nftables", "dual", "iptables-nft")])
"""Both families at once, for what no backend and no kube-proxy has a part in."""
