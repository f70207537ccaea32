from collections.abc import Mapping
from dataclasses import replace

import pytest

from nodeagent.model.desired import DecisionStatus, Desired
from nodeagent.model.objects import EXCLUDE, PROXY_PROTOCOL
from tests.plan.made_up import NODE, config, desired, of_service, redirects, relay_of, service
from tests.plan.test_providers import DO as DIGITALOCEAN

SCALEWAY = "service.beta.kubernetes.io/scw-loadbalancer-proxy-protocol-v2"


def annotated(
    annotations: Mapping[str, str], text: str = "loadBalancers: {}", provider_id: str = ""
) -> Desired:
    """The plan for one annotated Service on a node of that cloud; only `text` lists anything."""
    node = replace(NODE, provider_id=provider_id)
    return desired(service(annotations=annotations), node=node, options=config(text))


def test_only_the_listed_ports_send_proxy() -> None:
    entry = "{namespace: ingress, name: blue, proxyProtocol: v2, ports: [443, 8443]}"
    planned = desired(service(), options=config(f"loadBalancers: {{services: [{entry}]}}"))
    decision = of_service(planned)
    assert (decision.code, decision.status) == ("Listed", DecisionStatus.SERVED)
    assert [(each.bind.port, each.proxy) for each in planned.listeners] == [(80, None), (443, "v2")]
    assert set(redirects(planned)) == {"192.0.2.1:443"}
    assert decision.remarks == (
        "port 8443: listed in loadBalancers.services, but not a TCP port of the Service",
        "port 80: without PROXY: not redirected",
    )


def test_a_service_whose_listed_ports_it_does_not_have_is_skipped() -> None:
    entry = "{namespace: ingress, name: blue, ports: [8443]}"
    decision = of_service(desired(service(), options=config(f"loadBalancers: {{services: [{entry}]}}")))
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "NotProxy")


@pytest.mark.parametrize("own", [{}, {PROXY_PROTOCOL: "v2"}])
def test_without_detection_only_the_list_counts(own: Mapping[str, str]) -> None:
    planned = annotated({DIGITALOCEAN: "true", **own}, "loadBalancers: {detect: false}")
    decision = of_service(planned)
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "NotProxy")
    assert "loadBalancers.detect is false" in decision.reason


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_our_own_annotation_is_stronger_than_the_providers(version: str) -> None:
    for provider in ({}, {DIGITALOCEAN: "false"}, {DIGITALOCEAN: "nonsense"}):
        planned = annotated({PROXY_PROTOCOL: version, **provider})
        assert of_service(planned).code == "Annotated"
        assert {each.proxy for each in planned.listeners} == {version}


@pytest.mark.parametrize("value", ["V1", "true", "", "v1 ", "1", "v3", "x" * 10_000])
def test_a_bad_value_of_our_own_annotation_is_refused(value: str) -> None:
    """Nothing is guessed, not even from the provider's."""
    planned = annotated({PROXY_PROTOCOL: value, DIGITALOCEAN: "true"})
    decision = of_service(planned)
    assert (decision.status, decision.code) == (DecisionStatus.REFUSED, "BadAnnotation")
    assert "is not one of v1, v2, off" in decision.reason
    assert len(decision.reason) < 200
    assert not planned.dnat.redirects


@pytest.mark.parametrize("given", [{PROXY_PROTOCOL: "off"}, {EXCLUDE: "true"}, {DIGITALOCEAN: "nonsense"}])
def test_the_configuration_is_stronger_than_any_annotation(given: Mapping[str, str]) -> None:
    entry = "[{namespace: ingress, name: blue, proxyProtocol: v2}]"
    listed = of_service(annotated(given, f"loadBalancers: {{services: {entry}}}"))
    assert (listed.status, listed.code) == (DecisionStatus.SERVED, "Listed")
    both = f"services: {entry}, ignore: [{{namespace: ingress, name: blue}}]"
    ignored = of_service(annotated({PROXY_PROTOCOL: "v1"}, f"loadBalancers: {{{both}}}"))
    assert (ignored.status, ignored.code) == (DecisionStatus.SKIPPED, "Ignored")


@pytest.mark.parametrize(
    ("provider_id", "code"),
    [
        *(
            (other, "ForeignAnnotation")
            for other in (
                "hcloud://4711",
                "aws:///eu-west-1a/i-0123",
                "qcloud:///100003/ins-1",
                "cn-hangzhou.i-1",
                "ocid1.x",
            )
        ),
        *((own, "Annotated") for own in ("", "digitalocean://4711", "k3s://node1", "kind://docker/c/n")),
    ],
)
def test_an_annotation_is_believed_unless_the_node_is_of_another_cloud(provider_id: str, code: str) -> None:
    """Many a node has no providerID, or one that names no cloud."""
    assert of_service(annotated({DIGITALOCEAN: "true"}, provider_id=provider_id)).code == code


@pytest.mark.parametrize(
    "annotations",
    [
        {DIGITALOCEAN: "true"},
        {DIGITALOCEAN: "true", SCALEWAY: "false"},
        {DIGITALOCEAN: "true", SCALEWAY: "no"},
        {SCALEWAY: "false"},
    ],
)
def test_on_nodes_of_all_clouds_the_relay_addresses_are_the_same(annotations: Mapping[str, str]) -> None:
    """Whatever a node believes: an author could choose annotations that move the addresses of others."""
    own = {PROXY_PROTOCOL: "v2"}
    colliding = [
        service(f"lb{index}", ips=(f"192.0.2.{index}",), created=index, annotations=own)
        for index in range(3, 90)
    ]
    options = config("relay: {ipv4: 169.254.66.0/25}")
    doubtful = service(annotations=annotations, created=0)
    plans = [
        desired(doubtful, *colliding, node=replace(NODE, provider_id=cloud), options=options)
        for cloud in ("digitalocean://1", "scaleway://1", "hcloud://1", "")
    ]
    found = [{each.ref.name: relay_of(planned, each.ref.name) for each in colliding} for planned in plans]
    assert any(found[0].values())
    assert found == found[:1] * len(found)
