"""What a pass is made of, each part timed in this process, next to the least that the disk allows.

In turns, so that a busy machine slows all of them alike: the ratios hold where the times don't.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.api import ingress
from benchmarks.figures import Figure, spread
from nodeagent.components.hosts.component import Hosts
from nodeagent.config.options import LimitOptions
from nodeagent.config.reading import read_config
from nodeagent.model.facts import Facts
from nodeagent.plan.planner import Planner, plan
from nodeagent.sources.manifests import read_manifests
from nodeagent.sources.objects.decoding import decode_ingress
from tests.testbed.world import MANIFESTS, NODEAGENT_CONFIG

PART = "What a pass is made of"
_TURNS = 20
_CONFIG = msgspec.structs.replace(
    read_config(NODEAGENT_CONFIG), limits=LimitOptions(hostnames_per_namespace=20_000)
)


def measure(names: int) -> Iterator[Figure]:
    """Time each part at this size, with one name more or less each turn."""
    seconds: dict[str, list[float]] = defaultdict(list)
    raw = [msgspec.json.encode(ingress(f"site-{number:05}")) for number in range(names + 1)]
    with _timed(seconds["Ingresses decoded (first list alone)"]):
        ingresses = [decode_ingress(item) for item in raw]
    standing = read_manifests(MANIFESTS, "node1", None)
    planner = Planner(_CONFIG)
    snapshots = [replace(standing, ingresses=tuple(ingresses[:size])) for size in (names, names + 1)]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "hosts"
        path.write_bytes(b"127.0.0.1\tlocalhost\n")
        hosts = Hosts(path, (_CONFIG.relay.ipv4, _CONFIG.relay.ipv6), path.parent / "run", adopt=False)
        for turn in range(_TURNS):
            with _timed(seconds["facts: the hosts file's names"]):
                user_names = hosts.read().user_names
            facts = Facts("node1", frozenset({"node1"}), user_names=user_names)
            with _timed(seconds["plan()"]):
                plan(snapshots[turn % 2], facts, _CONFIG)
            with _timed(seconds["plan() by a planner that remembers (first one alone)"]):
                desired = planner.plan(snapshots[turn % 2], facts)
            with _timed(seconds["hosts file: change worked out"]):
                change = hosts.diff(hosts.read(), desired)
            with _timed(seconds["hosts file: written"]):
                hosts.apply(change)
            content = path.read_bytes()
            with _timed(seconds["floor: the same bytes written, fsync, rename"]):
                _write(path, content)
    for what, taken in seconds.items():
        yield Figure(PART, what, "ms", names, spread(taken))


def _write(path: Path, content: bytes) -> None:
    """Do the least that replaces a file durably."""
    temporary = path.with_name("new")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def _timed(into: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    into.append(time.perf_counter() - began)
