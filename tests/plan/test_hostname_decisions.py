"""Which names are written to the hosts file, and why the others are not."""

from dataclasses import replace

import pytest

from nodeagent.model.desired import DecisionStatus
from nodeagent.model.objects import EXCLUDE, PROXY_PROTOCOL
from tests.plan.made_up import (
    FACTS,
    config,
    desired,
    hosts,
    ingress,
    of_name,
    point,
    relay_of,
    service,
    standing_names,
)
from tests.plan.tenant_worlds import ABSURD_HOSTS

NAME = "www.example.com"
LOOPBACK = ("localhost", "app.localhost", "localhost.localdomain", "ip6-localhost", "localhost6")
METADATA = ("metadata.google.internal", "instance-data.ec2.internal")
CLUSTER_DNS = (
    *("kubernetes", "kubernetes.default", "kubernetes.default.svc"),
    *("db.prod.svc", "db.prod.svc.cluster.local", "cluster.local"),
)


@pytest.mark.parametrize("host", [host for host in ABSURD_HOSTS if host[0:1] != "\u212a"], ids=ascii)
def test_an_absurd_host_is_refused_and_hides_no_other(host: str) -> None:
    planned = desired(service(), ingress(host, NAME))
    refused, served = sorted(planned.names, key=lambda decision: decision.name == NAME)
    assert (refused.status, refused.code) == (DecisionStatus.REFUSED, "BadName")
    assert refused.reason.startswith("never written: ")
    assert served.status is DecisionStatus.SERVED
    assert hosts(planned) == [f"{relay_of(planned)[4]} {NAME}"]


@pytest.mark.parametrize("name", ["node1", "api.example.com", *LOOPBACK, *METADATA, *CLUSTER_DNS])
def test_some_names_are_never_written(name: str) -> None:
    options = config(f"hosts: {{allow: [{name}]}}")
    facts = replace(FACTS, api_server_names=frozenset({"api.example.com"}))
    planned = desired(service(), ingress(name.upper()), facts=facts, options=options)
    decision = of_name(planned, name)
    assert (decision.status, decision.code) == (DecisionStatus.REFUSED, "NeverWritten")
    assert hosts(planned) == []


def test_the_cluster_domain_is_the_configured_one_and_a_name_below_this_nodes_own_may_be_written() -> None:
    """Some clusters have another domain; only the node's names themselves are its own."""
    options = config("hosts: {allow: [k8s.test, cluster.local, node1], clusterDomain: k8s.test}")
    planned = desired(service(), ingress("a.k8s.test", "a.cluster.local", "app.node1"), options=options)
    assert of_name(planned, "a.k8s.test").code == "NeverWritten"
    assert of_name(planned, "a.cluster.local").code == "Allowed"
    assert of_name(planned, "app.node1").code == "Allowed"


def test_an_ingress_without_a_creation_time_counts_as_the_newest() -> None:
    """A manifest that was never applied displaces nothing that runs."""
    planned = desired(
        service(),
        service("green", ips=("192.0.2.2",)),
        ingress(NAME, name="a", created=None),
        ingress(NAME, name="b", created=9, points=(point("192.0.2.2"),)),
    )
    assert hosts(planned) == [f"{relay_of(planned, 'green')[4]} {NAME}"]


def test_an_ingress_whose_load_balancer_is_unknown_takes_no_name_from_one_that_is_known() -> None:
    planned = desired(
        service(),
        ingress(NAME, name="old", created=0, points=(point("198.51.100.9"),)),
        ingress(NAME, name="new", created=9),
    )
    assert of_name(planned, NAME).claimed_by.name == "new"
    assert hosts(planned) == [f"{relay_of(planned)[4]} {NAME}"]


def test_every_name_of_an_unknown_load_balancer_has_one_line_of_reason() -> None:
    unknown = (point("198.51.100.9"),)
    planned = desired(service(), *(ingress(NAME, name=name, points=unknown) for name in ("a", "b")))
    assert of_name(planned, NAME).code == "UnknownLoadBalancer"


@pytest.mark.parametrize("value", ["yes", "", " true", "tRUE", "on\n"])
def test_a_value_that_is_no_boolean_excludes_and_is_shown(value: str) -> None:
    """Its author did not want the default."""
    planned = desired(service(), ingress(NAME, annotations={EXCLUDE: value}))
    decision = of_name(planned, NAME)
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "ExcludedByAnnotation")
    assert f"{value!a} is neither true nor false" in decision.reason
    assert hosts(planned) == []


@pytest.mark.parametrize(("excluded_at", "written"), [(0, False), (2, True)])
def test_the_oldest_ingress_of_a_name_decides_whether_it_is_excluded(
    excluded_at: int, *, written: bool
) -> None:
    """A solver that exists for minutes restores no hostname; a newer object takes no hostname away."""
    planned = desired(
        service(),
        ingress(NAME, created=excluded_at, annotations={EXCLUDE: "true"}),
        ingress(NAME, name="solver", created=1),
    )
    assert bool(hosts(planned)) is written


def test_an_older_excluded_ingress_is_no_veto() -> None:
    excluded = ingress(NAME, namespace="team", annotations={EXCLUDE: "true"})
    planned = desired(service(), excluded, ingress(NAME, points=(), created=1))
    assert hosts(planned) == [f"{relay_of(planned)[4]} {NAME}"]


def test_an_older_load_balancer_that_takes_a_relay_address_gets_no_hostname_that_is_written_there() -> None:
    """Anyone who has an old Service can choose its name so that its relay address is another one's."""
    options, own = config("relay: {ipv4: 169.254.66.0/29}", proxies=[]), {PROXY_PROTOCOL: "v2"}
    mine = service(created=9, annotations=own), ingress(NAME, created=9)
    before = desired(*mine, options=options)
    at = {each.address: each.load_balancer for each in before.addresses}
    facts = replace(FACTS, standing_names=standing_names(before), standing_at=at)
    older = (service(f"t{number}", ips=["192.0.2.9"], annotations=own) for number in range(99))
    taker = next(
        each for each in older if relay_of(desired(each, options=options), each.ref.name) == relay_of(before)
    )
    claim = ingress(NAME, name="old", namespace="tenant", points=taker.points)
    after = desired(*mine, taker, claim, facts=facts, options=options)
    assert relay_of(after) != relay_of(before) == relay_of(after, taker.ref.name)
    assert hosts(after) == [f"{relay_of(after)[4]} {NAME}"]
