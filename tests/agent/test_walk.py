"""One load balancer's walk, as docs/architecture.md describes it: from a watch event to the kernel and back.

Through the public seams alone: the simulated API over HTTP, the real kernel, nft and HAProxy.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from ipaddress import IPv4Network, ip_address
from pathlib import Path
from types import FrameType

import pytest
from msgspec import Struct

from nodeagent.agent.convergence import compare
from nodeagent.agent.node_context import NodeContext, read_node_context
from nodeagent.agent.reconciler import Reconciler
from nodeagent.cli.report import encode, report
from nodeagent.components.dnat.nftables import NftProgram
from nodeagent.components.node import ActualState, Components, build_components, read_listener_status
from nodeagent.config.option_types import AbsolutePath, DnsName, RelayRange4
from nodeagent.config.options import Config, HostsOptions, RelayOptions
from nodeagent.model.addresses import Endpoint
from nodeagent.model.objects import ObjectRef, Snapshot
from nodeagent.netlink import KernelAddress, Netlink
from nodeagent.sources.node.api_servers import find_api_servers
from tests.apiserver import ApiServer, objects
from tests.components.relay.backend import backend, who
from tests.components.relay.namespace import SERVICE, isolated
from tests.sources.kubernetes.watching import NODE, Watched, connected, until, watching

FIRST, SECOND = "203.0.113.10", "203.0.113.20"
RANGE = "169.254.77.0/24"
SENDS_PROXY = {"load-balancer.hetzner.cloud/uses-proxyprotocol": "true"}


@dataclass
class Node:
    """A node whose agent watches a cluster; its passes are made by the test."""

    watched: Watched
    config: Config
    components: Components
    reconciler: Reconciler = field(init=False)

    def __post_init__(self) -> None:
        self.reconciler = Reconciler(NODE, self.config, self.components, self._read)

    def balanced(self, name: str, address: str) -> Snapshot:
        """Create a load balancer in the API; returns the snapshot once its watch has reported it."""
        service = objects.service(
            name, kind="LoadBalancer", cluster_ips=[SERVICE], addresses=[address], annotations=SENDS_PROXY
        )
        self.watched.api.store.create(service)
        self.watched.api.store.create(
            objects.ingress(name, hosts=[f"{name}.example.com"], addresses=[address])
        )
        until(
            lambda: name in self.watched.services() and name in self.watched.ingresses(), "the watch events"
        )
        return self.watched.snapshot()

    def _read(self, snapshot: Snapshot, actual: ActualState) -> NodeContext:
        api = find_api_servers(servers=[self.watched.connection.server])
        return read_node_context(self.config, snapshot, actual, api)


@contextmanager
def node(directory: Path) -> Iterator[Node]:
    """A node with an agent that has served one load balancer."""
    for address in (FIRST, SECOND):
        subprocess.run(["ip", "route", "add", f"{address}/32", "dev", "lo"], check=True)
    hosts = directory / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    config = Config(
        relay=RelayOptions(launch=True, ipv4=RelayRange4(RANGE)),
        hosts=HostsOptions(file=AbsolutePath(hosts), verify="allow", allow=(DnsName("example.com"),)),
    )
    with ApiServer() as api:
        api.store.create(objects.node(NODE))
        with connected(api, directory) as connection, watching(api, connection) as watched:
            made = Node(watched, config, build_components(config, adopt=False))
            done = made.reconciler.reconcile(made.balanced("first", FIRST), {}, everything=True)
            assert done.errors == {}
            yield made


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the reads of the kernel while the block runs: dumps of addresses, listings of our table."""
    reads: Counter[str] = Counter()
    read_addresses, list_table = Netlink.addresses, NftProgram.list_table

    def addresses(netlink: Netlink) -> list[KernelAddress]:
        reads["addresses"] += 1
        return read_addresses(netlink)

    def tables(nft: NftProgram) -> bytes | None:
        reads["tables"] += 1
        return list_table(nft)

    with monkeypatch.context() as patched:
        patched.setattr(Netlink, "addresses", addresses)
        patched.setattr(NftProgram, "list_table", tables)
        yield reads


VALUES_ON_THE_WALK = {
    "LoadBalancerPoint",
    "Service",
    "Snapshot",
    "Eligible",
    "Endpoint",
    "Redirect",
    "Relayed",
    "LoadBalancerDecision",
    "LoadBalancerPlan",
    "DnatRules",
    "Desired",
    "Change",
    "DnatChange",
    "DnatState",
    "NodePass",
    "_Rows",
}
"""Each type of value that holds the load balancer's address on its way into the kernel: one more is to have
a good reason."""

VALUES_OF_ITS_HOSTNAME = {
    "Ingress",
    "LoadBalancerHints",
    "Claim",
    "_Gathered",
    "LoadBalancerMatch",
    "MatchedClaim",
    "_Group",
    "Contender",
    "Outcome",
    "_Hostname",
}
"""The same for the hostname's way into the hosts file: an Ingress reports the address, too."""


@contextmanager
def values_that_hold(address: str) -> Iterator[set[str]]:
    """Collect the names of the value types that hold the address, in any function of the agent meanwhile."""
    found: set[str] = set()
    sought = ip_address(address)

    def holds(value: object) -> bool:
        if isinstance(value, Struct):
            inner = [getattr(value, name) for name in value.__struct_fields__]
        elif is_dataclass(value) and not isinstance(value, type):
            inner = [getattr(value, each.name) for each in fields(value)]
        elif isinstance(value, Mapping):
            inner = [*value.keys(), *value.values()]
        elif isinstance(value, tuple | list | set | frozenset):
            inner = [*value]
        else:
            return value == sought
        held = [each for each in inner if holds(each)]
        if held and type(value).__module__.startswith("nodeagent."):
            found.add(type(value).__name__)
        return bool(held)

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_globals["__name__"].startswith("nodeagent."):
            for value in frame.f_locals.values():
                holds(value)

    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)


@isolated
def test_one_load_balancer_from_a_watch_event_to_the_kernel_and_back_to_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node(tmp_path) as agent, backend(Endpoint(ip_address(SERVICE), 443)):
        # 1. A watch event becomes an object of the Snapshot.
        snapshot = agent.balanced("second", SECOND)
        assert ObjectRef("Service", "default", "second") in {each.ref for each in snapshot.services}

        # 2. A pass: facts, plan, one change for each component, each applied in two halves.
        with counted(monkeypatch) as reads, values_that_hold(SECOND) as values:
            done = agent.reconciler.reconcile(snapshot, {})
        assert done.errors == {}
        assert [change.component for change in done.changes] == [
            "addresses",
            "relay",
            "dnat",
            "hosts",
        ]

        # 3. What the kernel was asked: each actual state is read once, and once more after its change.
        assert reads == {"addresses": 2, "tables": 2}

        assert values - VALUES_OF_ITS_HOSTNAME == VALUES_ON_THE_WALK

        # 4. The decision, with its reason.
        decisions = {each.load_balancer.name: each for each in done.desired.load_balancers}
        (relay,) = decisions["second"].relay_addresses
        assert relay in IPv4Network(RANGE)

        # 5. The kernel: the address, HAProxy's listener on it, the redirect to it. The hosts file: the name.
        addresses = subprocess.run(["ip", "address"], check=True, capture_output=True, text=True).stdout
        assert f"{relay}/32" in addresses
        assert who(Endpoint(relay, 443)).startswith("v1 ")
        assert who(Endpoint(ip_address(SECOND), 443)).startswith("v1 ")
        assert f"{relay}\tsecond.example.com\n" in Path(agent.config.hosts.file).read_text()

        # 6. And back: `nodeagent status` finds all in sync, and each listener with what leads to it.
        actual = ActualState(agent.components)
        desired = done.desired
        comparison = compare(desired, actual)
        assert comparison.in_sync
        document = report("Status", NODE, desired, comparison, read_listener_status(desired, actual))
        assert f'"redirected": [\n            "{SECOND}:443"\n' in encode(document)

        # 7. A pass without a reason does nothing.
        idle = agent.reconciler.reconcile(agent.watched.snapshot(), {})
        assert (idle.components, idle.changes) == (frozenset(), [])
