"""A pass looks at what has a reason, and at what rests on it."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from nodeagent.agent.convergence import ALL
from nodeagent.agent.reconciler import changed_components, with_dependents
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, DnatRules, HostsLine, Listener, Redirect, RelayAddress
from nodeagent.model.objects import ObjectRef

RANGES = (ip_network("169.254.66.0/24"),)
LB = ObjectRef("Service", "ingress", "controller")
RELAY = Endpoint(ip_address("169.254.66.7"), 443)
BEFORE = Desired(
    addresses=(RelayAddress(RELAY.address, LB),),
    listeners=(Listener(RELAY, Endpoint(ip_address("10.96.0.10"), 443), "v1", LB),),
    dnat=DnatRules((Redirect(Endpoint(ip_address("203.0.113.10"), 443), RELAY, LB),)),
    hosts=(HostsLine(RELAY.address, "site.example.test"),),
)


def test_without_an_earlier_plan_everything_has_a_reason() -> None:
    assert changed_components(None, BEFORE) == ALL


def test_the_same_plan_gives_no_reason() -> None:
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
