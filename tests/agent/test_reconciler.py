from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from nodeagent.agent.convergence import NodePass, clean_up
from nodeagent.agent.reconciler import Reconciler
from nodeagent.components.component import COMPONENTS
from nodeagent.components.node import ActualState, Components, build_components
from nodeagent.config.option_types import AbsolutePath, DnsName
from nodeagent.config.options import Config, HostsOptions, LoadBalancerOptions, ProxyService, RelayOptions
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.decisions import DecisionStatus
from nodeagent.model.desired import Desired, HostsLine
from nodeagent.model.facts import Facts, InterfaceAddress
from nodeagent.model.objects import PROXY_PROTOCOL, Service, Snapshot
from nodeagent.plan.balancers.capacity import allocate
from nodeagent.plan.planner import Planner
from nodeagent.sources import node
from nodeagent.sources.api_servers import ApiServers
from nodeagent.sources.node import KubeProxy, read_facts, with_hosts_file
from tests.components.fake import Lines, Part
from tests.plan.made_up import point, service

_ADDRESS = "203.0.113.10"
_FACTS = Facts("node1")
_LINES = (HostsLine(ip_address("169.254.66.7"), "site.example.test"),)


class Passes:
    """A reconciler at a time of one's choosing, and its components in memory."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        read: Callable[[Snapshot, ActualState, Facts | None], Facts] = lambda *_: _FACTS,
        config: Config = Config(),  # noqa: B008 - frozen
        plan: Callable[[Planner, Snapshot, Facts], Desired] | None = None,
    ) -> None:
        self.now = 100.0
        self.desired = Desired(hosts=_LINES)
        self.plans: list[Desired] = []
        self.hosts = Part(lambda desired: desired.hosts)
        self.dnat = Part(lambda desired: desired.dnat.pods)
        self.addresses = Part(lambda desired: desired.addresses)
        self.relay = Part(lambda desired: desired.listeners)
        parts = {name: getattr(self, name) for name in COMPONENTS}

        def planned(planner: Planner, snapshot: Snapshot, facts: Facts) -> Desired:
            self.plans.append(plan(planner, snapshot, facts) if plan else self.desired)
            return self.plans[-1]

        monkeypatch.setattr(Planner, "plan", planned)
        self.reconciler = Reconciler(config, Components(**parts), read, clock=lambda: self.now)
        self.reconciler.start_watching()

    def make(self, after: float = 0.0, snapshot: Snapshot = Snapshot()) -> NodePass:  # noqa: B008 - frozen
        self.now += after
        return self.reconciler.reconcile(snapshot)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    made = Passes(monkeypatch)
    result = made.make()
    assert [component for component, _ in result.changes] == ["hosts"]
    assert result.repairs == {}
    return made


def test_a_pass_in_which_nothing_happened_to_the_node_reads_nothing(passes: Passes) -> None:
    reads = passes.hosts.reads
    assert passes.reconciler.next_due() == passes.now + 600
    passes.make(1.0)
    passes.desired = replace(passes.desired, remarks=("another plan",))
    assert passes.make(1.0).changes == []
    assert passes.hosts.reads == reads
    passes.make(600.0)
    assert passes.hosts.reads == reads + 1


def test_what_another_program_changed_is_repaired_and_reported(passes: Passes) -> None:
    assert not passes.reconciler.notice()
    passes.hosts.revert()
    assert passes.reconciler.notice()
    repair = passes.make().repairs["hosts"]
    assert repair.found == "it was written"
    assert passes.hosts.lines == _LINES


def test_what_is_not_kept_is_read_in_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that another program puts back is removed, though nothing reports it."""
    passes = Passes(monkeypatch, config=Config(hosts=HostsOptions(enabled=False)))
    passes.desired = Desired()
    passes.make()
    passes.hosts.revert(_LINES)
    passes.make()
    assert passes.hosts.lines == ()


def test_a_ring_that_changed_nothing_and_what_is_desired_anew_are_no_repair(passes: Passes) -> None:
    passes.hosts.revert(passes.hosts.lines)
    result = passes.make()
    assert (result.changes, result.repairs) == ([], {})
    passes.desired = Desired()
    result = passes.make()
    assert [component for component, _ in result.changes] == ["hosts"]
    assert result.repairs == {}


def test_what_another_program_keeps_reverting_waits_ever_longer(passes: Passes) -> None:
    waits: list[float] = []
    while len(waits) < 4:
        passes.hosts.revert()
        if "hosts" in passes.make().left_alone:
            due = passes.reconciler.next_due()
            waits.append(due - passes.now)
            passes.now = due
    assert waits == [1, 2, 4, 8]
    assert passes.reconciler.backoff.conflicting() == {"hosts"}
    assert passes.make().repairs["hosts"].found == "it was written", "what was seen while it waited"
    passes.hosts.revert()
    passes.desired = Desired()
    assert "hosts" not in passes.make().left_alone, "something else is desired"


def test_what_failed_waits_up_to_five_minutes_and_the_others_do_not(passes: Passes) -> None:
    passes.hosts.failure = "read-only"
    passes.hosts.revert()
    waits = []
    for _ in range(12):
        assert passes.make().errors == {"hosts": "read-only"}
        due = passes.reconciler.next_due()
        waits.append(due - passes.now)
        passes.now += waits[-1] / 2
        assert passes.make().left_alone == {"hosts"}
        assert passes.reconciler.next_due() == due, "passes for other reasons do not put it off"
        passes.now = due
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    passes.hosts.failure = ""
    result = passes.make()
    assert result.recovered == {"hosts"}
    assert not result.repairs
    assert not result.errors
    assert not passes.reconciler.backoff.failing
    passes.hosts.failure = "read-only again"
    passes.hosts.revert()
    passes.make()
    assert passes.reconciler.next_due() == passes.now + 1


def test_what_failed_is_tried_again_when_it_has_changed(passes: Passes) -> None:
    passes.relay.failure = "no HAProxy answers"
    passes.relay.revert()
    passes.make()
    passes.relay.revert()
    assert passes.make().left_alone == {"relay"}, "the same as when it failed"
    passes.relay.revert(("HAProxy runs",))
    assert passes.make().left_alone == frozenset()


def test_what_points_at_what_is_left_alone_is_not_removed_before_it(passes: Passes) -> None:
    """A listener stays while something may still point at it."""
    passes.hosts.failure = "read-only"
    passes.hosts.revert()
    passes.make()
    applied = passes.relay.applied
    result = passes.make()
    assert result.left_alone == {"hosts"}
    assert result.blocking == {"hosts"}
    assert passes.relay.applied == applied


def _keeping(part: Part, actual: Lines, desired: Desired, *, keep: bool = False) -> Lines:
    lines = {*part.part(desired), *(actual.lines if keep else ())}  # type: ignore[misc]
    return Lines(actual.lines, tuple(sorted(lines, key=str)))


def test_what_is_pointed_at_is_removed_after_what_points_there(
    passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Part, "diff", _keeping)
    passes.desired = Desired()
    for part in (passes.addresses, passes.relay, passes.hosts):
        part.revert(("old",))
    passes.hosts.failure = "read-only"
    passes.make()
    assert [passes.relay.lines, passes.addresses.lines] == [("old",), ("old",)]
    passes.hosts.failure = ""
    assert passes.make(1.0).repairs == {}, "an ordinary removal, only later"
    assert [passes.relay.lines, passes.addresses.lines] == [(), ()]


def test_what_is_removed_once_the_cluster_is_known_is_no_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another program did before, or does later, is repaired."""
    monkeypatch.setattr(Part, "diff", _keeping)
    made = Passes(monkeypatch)
    parts: list[Part] = [getattr(made, name) for name in COMPONENTS]
    for part in parts:
        part.part, part.lines = (lambda _: ("new",)), ("old",)
    both = ("new", "old")
    reported: list[list[str]] = []
    for only_adds, found in ((True, ("old",)), (True, ("old",)), (False, both), (False, both)):
        made.desired = Desired(only_adds=only_adds)
        made.dnat.revert(found)
        reported.append([*made.make(1.0).repairs])
    assert reported == [[], ["dnat"], [], ["dnat"]]
    assert made.hosts.lines == made.addresses.lines == ("new",)


def test_the_guard_is_removed_after_what_it_guards(passes: Passes) -> None:
    passes.dnat.part = lambda desired: ("guard",) if desired.dnat.guarded or desired.dnat.leaving else ()
    passes.dnat.revert(("guard",))
    passes.addresses.revert(("169.254.66.7",))
    passes.addresses.failure = "not permitted"
    clean_up(passes.reconciler.actual.components)
    assert passes.dnat.lines == ("guard",)
    passes.addresses.failure = ""
    clean_up(passes.reconciler.actual.components)
    assert passes.dnat.lines == passes.addresses.lines == ()


def _read(snapshot: Snapshot, actual: ActualState, earlier: Facts | None) -> Facts:
    return read_facts("node1", Config(), snapshot, actual, ApiServers(), earlier)


def test_an_address_that_the_api_servers_publish_is_not_redirected(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the pass on that sees it: no other event has to come."""
    made = Passes(monkeypatch, _read, plan=Planner.plan)
    before = Snapshot(services=(service(ips=(_ADDRESS,), annotations={PROXY_PROTOCOL: "v2"}),))
    made.make(0.0, before)
    made.make(0.0, replace(before, api_servers=frozenset({Endpoint(ip_address(_ADDRESS), 6443)})))
    first, second = made.plans
    assert [each.status for each in first.load_balancers] == [DecisionStatus.SERVED]
    assert [each.status for each in second.load_balancers] == [DecisionStatus.REFUSED]
    assert second.dnat.redirects == ()


def _on_disk(folder: Path, relay: RelayOptions) -> tuple[Config, ActualState]:
    (folder / "hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
    config = Config(relay=relay, hosts=HostsOptions(file=AbsolutePath(folder / "hosts")))
    return config, ActualState(build_components(config, adopt=False))


def test_with_an_existing_relay_the_nodes_own_addresses_are_known_as_well(tmp_path: Path) -> None:
    """Else an unlisted Service that publishes one of them was redirected."""
    config, actual = _on_disk(tmp_path, RelayOptions(kind="service", run_dir=AbsolutePath(tmp_path)))
    facts = read_facts("n1", config, Snapshot(), actual, ApiServers())
    facts = with_hosts_file(facts, config, actual, adopt=False)
    assert ip_address("127.0.0.1") in {each.address for each in facts.addresses}


def test_the_names_of_a_block_count_unless_it_is_the_one_that_was_wanted_last(tmp_path: Path) -> None:
    config, actual = _on_disk(tmp_path, RelayOptions(run_dir=AbsolutePath(tmp_path)))
    wanted = (HostsLine(ip_address("169.254.66.9"), "site.example.com"),)
    actual.hosts.apply(Desired(hosts=wanted))

    def known(lines: tuple[HostsLine, ...]) -> set[str]:
        facts = Facts(node_name="n1")
        return set(with_hosts_file(facts, config, actual, adopt=False, wanted=lines).standing_names)

    assert known(wanted) == set()
    assert known(()) == known((wanted[0], wanted[0])) == {"site.example.com"}


def test_rules_that_cant_be_read_any_more_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until they can be read again: fail static."""
    caught = frozenset({ip_address(_ADDRESS)})
    translated = KubeProxy(endpoints=frozenset({Endpoint(ip_address(_ADDRESS), 443)}))
    rules = iter([translated, KubeProxy(unreadable="nft: busy"), KubeProxy()])
    monkeypatch.setattr(node, "read_kube_proxy", lambda _: next(rules))
    doubtful = service(points=(point(_ADDRESS, mode="Proxy"),), annotations={PROXY_PROTOCOL: "v2"})
    seen: list[object] = []

    def plan(_: Planner, __: Snapshot, facts: Facts) -> Desired:
        seen.append(facts.short_circuited)
        return Desired()

    made = Passes(monkeypatch, _read, plan=plan)
    for _ in range(3):
        made.make(600.0, Snapshot(services=(doubtful,)))
    assert seen == [caught, caught, frozenset()]


_FOUR = InterfaceAddress(ip_address("192.0.2.1"), 24, "eth0")
_SIX = InterfaceAddress(ip_address("2001:db8::1"), 64, "eth0")
_PROXY = {PROXY_PROTOCOL: "v2"}
_LB, _LB_6 = ip_address(_ADDRESS), ip_address("2001:db8:1::10")


@pytest.mark.parametrize(
    ("load_balancer", "then", "served"),
    [
        # Router advertisements come after the agent.
        (service(ips=(_ADDRESS, str(_LB_6)), annotations=_PROXY), {"addresses": (_FOUR, _SIX)}, _LB_6),
        # kube-proxy writes its rules after the agent has looked.
        (
            service(points=(point(_ADDRESS, mode="Proxy"),), annotations=_PROXY),
            {"short_circuited": {_LB}},
            _LB,
        ),
    ],
)
def test_what_contradicts_a_load_balancers_needs_is_read_again_soon(
    monkeypatch: pytest.MonkeyPatch, load_balancer: Service, then: dict[str, Any], served: IPAddress
) -> None:
    """And only as long as it does."""
    facts = [replace(_FACTS, addresses=(_FOUR,))]
    reads: list[float] = []
    snapshot = Snapshot(services=(load_balancer,))

    def read(*_: object) -> Facts:
        reads.append(made.now)
        return facts[-1]

    made = Passes(monkeypatch, read, plan=Planner.plan)

    def redirected(after: float) -> set[IPAddress]:
        made.make(after, snapshot)
        return {one.match.address for one in made.plans[-1].dnat.redirects}

    assert served not in redirected(0)
    facts.append(replace(facts[0], **then))
    assert served not in redirected(14)
    assert made.reconciler.next_due() <= made.now + 1
    assert served in redirected(1)
    redirected(60)
    assert len(reads) == 2


def test_pods_that_come_and_go_are_no_repair(passes: Passes, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in rollouts of the relay, one after the other."""
    monkeypatch.setattr(Lines, "repairs", False)
    for number in range(10):
        passes.hosts.revert((f"pod {number}",))
        result = passes.make(1.0)
        assert [component for component, _ in result.changes] == ["hosts"]
        assert result.repairs == {}


def test_a_namespace_that_reloads_haproxy_all_the_time_waits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reload ends the oldest of HAProxy's processes, with the connections of others."""
    listed = ProxyService(DnsName("mine"), DnsName("lb"))
    config = Config(load_balancers=LoadBalancerOptions(services=(listed,)))
    made = Passes(monkeypatch, lambda *_: replace(_FACTS, addresses=(_FOUR,)), config, Planner.plan)

    def flipping(namespace: str, address: str, number: int) -> Service:
        ports = (str(443 + number % 2),)
        return service("lb", namespace=namespace, ips=(address,), annotations=_PROXY, ports=ports)

    def served(*services: Service) -> set[str]:
        made.make(1.0, Snapshot(services=services))
        return {f"{one.load_balancer.namespace} {one.bind.port}" for one in made.relay.lines}  # type: ignore[attr-defined]

    applied = []
    for number in range(1300):
        served(flipping("noisy", _ADDRESS, number))
        applied.append(made.relay.applied)
    changed = [applied.index(count) for count in sorted({*applied})]
    assert changed == [0, 1, 2, 3, 4, 5, 16, 37, 78, 159, 320, 641, 1242], "10 s, 20 s, ... ten minutes"
    quiet = flipping("quiet", "203.0.113.11", 0)
    assert "quiet 443" in served(flipping("noisy", _ADDRESS, 0), quiet)
    assert served(quiet) == {"quiet 443"}, "what is deleted goes at once"
    for number in range(30):
        assert f"mine {443 + number % 2}" in served(quiet, flipping("mine", "203.0.113.12", number))
    assert made.reconciler.next_due() <= made.now + 600
    made.now += 2700
    for number in range(5):
        made.now += 900
        assert f"noisy {443 + number % 2}" in served(quiet, flipping("noisy", _ADDRESS, number))
    assert "noisy 444" in served(quiet, flipping("noisy", _ADDRESS, 5)), "five in more than an hour"


def test_no_namespace_waits_for_what_others_do_to_its_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older load balancer that comes and goes, of a name that anyone can find, takes its relay address."""
    made = Passes(monkeypatch, lambda *_: replace(_FACTS, addresses=(_FOUR,)), plan=Planner.plan)
    ours = service("lb", namespace="quiet", ips=(_ADDRESS,), annotations=_PROXY, ports=("443",))
    network = Config().relay.ipv4
    names = (
        service(f"lb{number}", namespace="noisy", ips=("203.0.113.11",), annotations=_PROXY, ports=("443",))
        for number in range(1_000_000)
    )
    wanted = allocate([ours], network)["quiet/lb"]
    theirs = next(one for one in names if allocate([one], network)[one.ref.path] == wanted)
    for number in range(12):
        made.make(0.7, Snapshot(services=(ours, theirs) if number % 2 else (ours,)))
        assert (made.plans[-1].listeners[-1].bind.address == wanted) == (not number % 2 or number > 5)
    other = service("lb", namespace="quiet", ips=(_ADDRESS,), annotations=_PROXY, ports=("444",))
    assert made.make(0.7, Snapshot(services=(other, theirs))).waiting == {"noisy"}
    assert 444 in {one.bind.port for one in made.plans[-1].listeners}
