"""Each kind that claims hostnames leads to a load balancer by its class, and reads a status of any form."""

import json
from typing import Any

import pytest

from nodeagent.model.decisions import DecisionStatus
from nodeagent.model.desired import Desired
from nodeagent.plan.planner import plan
from nodeagent.sources.manifests import read_manifests
from nodeagent.sources.objects.kinds import CONTROLLER_KINDS, ControllerKind
from tests.apiserver import objects
from tests.apiserver.objects import objects_under
from tests.plan.made_up import FACTS, config
from tests.situations.situation import SITUATIONS


def planned(*manifests: object, options: str = "{detect: true}") -> Desired:
    """The plan for these objects; every hostname is trusted."""
    snapshot = read_manifests("\n---\n".join(map(json.dumps, manifests)).encode(), "node1")
    assert snapshot.unreadable == ()
    return plan(snapshot, FACTS, config(f"hosts: {{allow: [com, org, domain]}}\nloadBalancers: {options}"))


def example(group: str, kind: str) -> dict[str, Any]:
    """The example of a kind, as the situation has it that shows one of each."""
    found = objects_under(SITUATIONS / "an-object-of-each-kind" / "manifests")
    wanted = [one for one in found if (one["apiVersion"].partition("/")[0], one["kind"]) == (group, kind)]
    assert wanted, f"add a {kind} of {group} to tests/situations/an-object-of-each-kind/manifests"
    return wanted[0]


def balancer(name: str = "blue", last: int = 10) -> dict[str, Any]:
    own = {"nodeagent.io/proxy-protocol": "v2"}
    return objects.load_balancer(name, "ingress", addresses=[f"203.0.113.{last}"], annotations=own)


@pytest.mark.parametrize("row", CONTROLLER_KINDS, ids=lambda row: f"{row.kind}.{row.group}")
def test_the_class_of_a_kind_or_that_of_its_controller_leads_to_a_load_balancer(row: ControllerKind) -> None:
    """`ingressClassName` counts, else the only class of the controller."""
    found = example(row.group, row.kind)
    found.pop("status", None)
    found["spec"]["ingressClassName"] = "mine"
    entry = "{class: mine, namespace: ingress, name: green}"
    desired = planned(balancer(), balancer("green", 20), found, options=f"{{ingressClasses: [{entry}]}}")
    assert {str(one.load_balancer) for one in desired.names} == {"Service ingress/green"}


@pytest.mark.parametrize("entries", ["nonsense", [{"ip": "nonsense"}], [{"ip": 7}, 8]])
def test_a_status_with_a_bad_address_or_of_another_type_leaves_the_object_readable(entries: object) -> None:
    found = example("k8s.nginx.org", "VirtualServer") | {"status": {"externalEndpoints": entries}}
    (decision,) = planned(balancer(), found).names
    assert decision.status is DecisionStatus.SERVED
