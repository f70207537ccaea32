"""When a pass is due, and what it looks at: components that failed or are held, and what others call for."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from nodeagent.agent.convergence import ALL, AppliedChange, NodePass
from nodeagent.agent.node_context import NodeContext, gather_facts, read_node_context
from nodeagent.agent.reconciler import Reconciler, Retries, changed_components, with_dependents
from nodeagent.components.component import ComponentName
from nodeagent.components.node import ActualState, build_components
from nodeagent.config.option_types import AbsolutePath
from nodeagent.config.options import Config, HostsOptions, RelayOptions
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, DnatRules, HostsLine, Listener, Redirect, RelayAddress, Verdict
from nodeagent.model.facts import Facts
from nodeagent.model.objects import PROXY_PROTOCOL, ObjectRef, Snapshot
from nodeagent.plan.planner import Planner
from nodeagent.sources.node.api_servers import ApiServers
from nodeagent.sources.node.service_proxy import ServiceRules
from tests.plan.made_up import service

_ADDRESS = "203.0.113.10"
_CONTEXT = NodeContext(ApiServers(), (), (), {}, ServiceRules())


class Passes:
    """A reconciler at a time of one's choosing, over a node whose components do what the test asks for.

    The node is no node: what matters here is when it is looked at.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        directory: Path,
        read_context: Callable[[Snapshot, ActualState], NodeContext] | None = None,
    ) -> None:
        self.now = 100.0
        self.errors: dict[ComponentName, str] = {}
        """What fails when it is looked at."""
        self.mends: tuple[ComponentName, ...] = ()
        """What another program has undone each time."""
        self.answering: object = None
        """Which listeners the last pass took for ready; None: it asked each."""
        self.silent = ""
        """The error that every pass reports for a relay that does not answer."""
        config = Config(
            relay=RelayOptions(run_dir=AbsolutePath(directory)),
            hosts=HostsOptions(file=AbsolutePath(directory / "hosts")),
        )
        (directory / "hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
        monkeypatch.setattr("nodeagent.agent.reconciler.converge", self._converge)
        self.reconciler = Reconciler(
            "node1",
            config,
            build_components(config, adopt=False),
            read_context or (lambda *_: _CONTEXT),
            clock=lambda: self.now,
        )

    def look(
        self, drift: Mapping[ComponentName, str] | None = None, *, everything: bool = False
    ) -> AbstractSet[ComponentName]:
        """One pass; returns what it looked at."""
        return self.reconciler.reconcile(Snapshot(), drift or {}, everything=everything).components

    def _converge(
        self, desired: Desired, _actual: object, components: frozenset[ComponentName], answering: object
    ) -> NodePass:
        self.answering = answering
        done = NodePass(desired, components=components)
        done.errors.update({name: why for name, why in self.errors.items() if name in components})
        done.changes.extend(AppliedChange(name, "mended") for name in self.mends if name in components)
        if self.silent:
            done.errors["relay"] = self.silent
        return done


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Passes:
    """A reconciler that has made no pass yet."""
    return Passes(monkeypatch, tmp_path)


def test_a_part_that_is_fought_over_and_fails_waits_for_the_end_of_its_hold(passes: Passes) -> None:
    """It would otherwise be due at once, over and over, without ever being tried."""
    passes.look(everything=True)
    passes.mends = ("hosts",)
    while (hold := (passes.reconciler.next_due() or passes.now) - passes.now) < 8.0:
        passes.now += hold + 0.1
        passes.look({"hosts": "it was written"})
    passes.errors = {"hosts": "another program wrote it meanwhile"}
    passes.now += hold
    assert "hosts" in passes.look()
    failed = passes.now
    while passes.now < failed + 5.0:
        due = passes.reconciler.next_due()
        assert due is not None
        assert due > passes.now, "a pass is due that would look at nothing"
        passes.now += 0.5
        assert "hosts" not in passes.look()
    passes.now = passes.reconciler.next_due() or 0.0
    assert "hosts" in passes.look()


def test_while_a_repair_is_held_nothing_may_point_at_what_is_missing(passes: Passes) -> None:
    """Another program removes the relay addresses all the time."""
    passes.look(everything=True)
    passes.mends = ("addresses",)
    looked: AbstractSet[ComponentName] = ALL
    while "addresses" in looked:
        passes.now += 0.2
        looked = passes.look({"addresses": "169.254.66.7 was removed"})
    assert looked == {"relay", "dnat", "hosts"}
    assert passes.look({"hosts": "it was written"}) == {"hosts"}
    assert passes.answering is None
    passes.now = passes.reconciler.next_due() or 0.0
    assert "addresses" in passes.look()


def test_passes_for_other_reasons_do_not_put_off_the_next_try_of_a_silent_relay(passes: Passes) -> None:
    """Events come all the time; a relay that answers again is to be found within its own pause."""
    passes.silent = "nothing answers"
    passes.look(everything=True)
    first = passes.reconciler.next_due()
    for _ in range(10):
        assert "relay" not in passes.look({"hosts": "it was written"})
    assert passes.reconciler.next_due() == first
    assert first is not None
    passes.now = first
    assert "relay" in passes.look()


def test_an_address_that_the_api_servers_publish_is_not_redirected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From the pass on that sees it: no other event has to come."""

    def read(snapshot: Snapshot, actual: ActualState) -> NodeContext:
        return read_node_context(Config(), snapshot, actual, ApiServers())

    passes = Passes(monkeypatch, tmp_path, read)
    before = Snapshot(services=(service(ips=(_ADDRESS,), annotations={PROXY_PROTOCOL: "v2"}),))
    (served,) = passes.reconciler.reconcile(before, {}).desired.load_balancers
    assert served.verdict is Verdict.SERVED
    after = replace(before, api_servers=frozenset({Endpoint(ip_address(_ADDRESS), 6443)}))
    desired = passes.reconciler.reconcile(after, {}).desired
    assert [each.verdict for each in desired.load_balancers] == [Verdict.REFUSED]
    assert desired.dnat.redirects == ()


def test_with_an_existing_relay_the_nodes_own_addresses_are_known_as_well() -> None:
    """Else an unlisted Service that publishes one of them was redirected."""
    config = Config(relay=RelayOptions(kind="service"))
    actual = ActualState(build_components(config, adopt=False))
    context = read_node_context(config, Snapshot(), actual, ApiServers())
    facts = gather_facts("n1", context, config, actual, adopt=False)
    assert ip_address("127.0.0.1") in {each.address for each in facts.addresses}


def test_rules_that_cant_be_read_any_more_still_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Until they can be read again: fail static."""
    caught = frozenset({ip_address(_ADDRESS)})
    rules = iter([ServiceRules(caught), ServiceRules(notes=("nft: busy",)), ServiceRules()])
    passes = Passes(monkeypatch, tmp_path, lambda *_: replace(_CONTEXT, service_rules=next(rules)))
    seen: list[AbstractSet[object]] = []

    def plan(_: Planner, __: Snapshot, facts: Facts) -> Desired:
        seen.append(facts.short_circuited)
        return Desired()

    monkeypatch.setattr(Planner, "plan", plan)
    for _ in range(3):
        passes.look(everything=True)
    assert seen == [caught, caught, frozenset()]


def test_a_part_that_fails_over_and_over_waits_up_to_a_minute() -> None:
    """Each on its own; a success is reported once."""
    retries = Retries()
    for expected in [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60]:
        retries.failed("hosts", 100.0)
        assert expected * 0.8 <= retries.due_at["hosts"] - 100.0 <= expected * 1.2
    retries.failed("dnat", 100.0)
    assert retries.due(101.3) == {"dnat"}
    assert retries.due(200.0) == {"hosts", "dnat"}
    assert retries.succeeded("hosts")
    assert not retries.succeeded("hosts")
    retries.failed("hosts", 100.0)
    assert retries.due(101.3) == {"hosts", "dnat"}


RANGES = (ip_network("169.254.66.0/24"),)
LB = ObjectRef("Service", "ingress", "controller")
RELAY = Endpoint(ip_address("169.254.66.7"), 443)
BEFORE = Desired(
    addresses=(RelayAddress(RELAY.address, LB),),
    listeners=(Listener(RELAY, Endpoint(ip_address("10.96.0.10"), 443), "v1", LB),),
    dnat=DnatRules((Redirect(Endpoint(ip_address("203.0.113.10"), 443), RELAY, LB),)),
    hosts=(HostsLine(RELAY.address, "site.example.test"),),
)


def test_a_first_plan_gives_everything_a_reason_and_the_same_again_nothing() -> None:
    assert changed_components(None, BEFORE) == ALL
    assert changed_components(BEFORE, BEFORE) == frozenset()


@pytest.mark.parametrize(
    ("after", "concerned"),
    [
        (replace(BEFORE, hosts=()), "hosts"),
        (replace(BEFORE, dnat=replace(BEFORE.dnat, pods=RANGES)), "dnat"),
        (replace(BEFORE, dnat=replace(BEFORE.dnat, guarded=RANGES)), "dnat"),
        (replace(BEFORE, dnat=replace(BEFORE.dnat, admitted=RANGES)), "dnat"),
    ],
    ids=["names", "pods", "the guard", "who is admitted"],
)
def test_what_changed_is_looked_at_alone_if_nothing_rests_on_it(after: Desired, concerned: str) -> None:
    assert with_dependents(changed_components(BEFORE, after)) == {concerned}


def test_what_points_at_the_relay_is_looked_at_with_it() -> None:
    assert with_dependents({"relay"}) == {"relay", "dnat", "hosts"}
    assert with_dependents({"addresses"}) == ALL
