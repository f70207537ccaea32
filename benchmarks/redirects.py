"""What a DNAT backend takes to read, and to change by one entry, among few and among many."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import IPv4Address
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure, spread
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend, difference
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import DnatRules, Redirect
from nodeagent.model.objects import ObjectRef
from tests.components.dnat.network import Namespace

PART = "Redirects in the kernel, by backend"
_TURNS = 20
_SIZES = (10, 5000)
_FIRST = IPv4Address("198.18.0.0")
_RELAY = Endpoint(IPv4Address("169.254.66.5"), 443)


def measure() -> Iterator[Figure]:
    """Time each backend at each size, in a network namespace and with a lock file of its own."""
    with TemporaryDirectory() as directory:
        os.environ["XTABLES_LOCKFILE"] = f"{directory}/xtables.lock"
        for size in _SIZES:
            for backend in (NftablesBackend(), IptablesBackend()):
                yield from _of(backend, size)


def _of(backend: DnatBackend, size: int) -> Iterator[Figure]:
    namespace = Namespace()
    with namespace.inside():
        began = time.perf_counter()
        _apply(backend, _entries(size))
        filled = time.perf_counter() - began
        read = [_seconds(backend.read) for _ in range(_TURNS)]
        wanted = [_entries(size), _entries(size + 1)]
        delta = [_seconds(partial(_apply, backend, wanted[(turn + 1) % 2])) for turn in range(_TURNS)]
    namespace.close()
    for what, taken in (("all at once", [filled]), ("read", read), ("one entry more or less", delta)):
        yield Figure(PART, f"{backend.name}: {what}", "ms", size, spread(taken))


def _entries(count: int) -> DnatRules:
    owner = ObjectRef("Service", "ingress-nginx", "controller")
    return DnatRules(tuple(Redirect(Endpoint(_FIRST + i, 443), _RELAY, owner) for i in range(count)))


def _apply(backend: DnatBackend, desired: DnatRules) -> None:
    """As a pass does: read, compare, run, read back."""
    backend.run(difference(backend.read(), desired))


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
