"""Every row of the providers' table, with what switches PROXY on, what does not, and the traps of each."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from nodeagent.config.options import LoadBalancerOptions
from nodeagent.model.objects import Service
from nodeagent.plan.identity.identify import Identity, identify
from nodeagent.plan.identity.providers import KNOWN_SCHEMES, PROVIDERS
from tests.cases import cases_of
from tests.plan.made_up import service

CASES: dict[str, dict[str, Any]] = cases_of(__file__, "providers.yaml")
BETA = "service.beta.kubernetes.io"
DO = f"{BETA}/do-loadbalancer-enable-proxy-protocol"
DO_TYPE = f"{BETA}/do-loadbalancer-type"
AWS = f"{BETA}/aws-load-balancer-proxy-protocol"
AWS_TYPE = f"{BETA}/aws-load-balancer-type"
LOXILB = "loxilb.io/useproxyprotov2"
ALL_V2 = {22: "v2", 80: "v2", 443: "v2"}
_ALL = {"v1": {22: "v1", 80: "v1", 443: "v1"}, "v2": ALL_V2}

_ROWS = [(name, *case) for name, cases in CASES["proxy"].items() for case in cases]
READ: list[tuple[str, Mapping[str, str], Mapping[int, str]]] = [
    (name, annotations, _ALL[said] if isinstance(said, str) else said)
    for name, annotations, said in _ROWS
    if "refused" not in said
]
REFUSED = [(name, annotations, said["refused"]) for name, annotations, said in _ROWS if "refused" in said]
REFUSED += [("UpCloud", {f"{BETA}/upcloud-load-balancer-config": "[" * 100_000}, "not the expected JSON")]


def three_ports(annotations: Mapping[str, str]) -> Service:
    """A Service with ssh, http and https, and https by UDP as well, each with a node port; loxilb's if so."""
    found = service(
        ports=("22:ssh", "80:http", "443:https", "443:http3/UDP"),
        annotations=annotations,
        load_balancer_class="loxilb.io/loxilb" if LOXILB in annotations else None,
    )
    ports = (structs.replace(port, node_port=30_000 + port.port) for port in found.ports)
    return replace(found, ports=tuple(ports))


def detected(annotations: Mapping[str, str]) -> Identity:
    """What is decided where no node says of which cloud it is."""
    return identify(three_ports(annotations), LoadBalancerOptions(), "")


def _id(value: object) -> str:
    return value if isinstance(value, str) else ascii(value)[:80]


@pytest.mark.parametrize(("provider", "annotations", "ports"), READ, ids=_id)
def test_the_ports_that_send_proxy_are_those_that_the_annotations_say(
    provider: str, annotations: Mapping[str, str], ports: Mapping[int, str]
) -> None:
    found = detected(annotations)
    assert (found.versions, found.proxy) == (ports, bool(ports))
    if ports:
        assert found.code == "Annotated"
        assert found.reason.startswith("PROXY v")
        assert found.reason.endswith(f"({provider})")
        assert any(f"{key}=" in found.reason for key in annotations)
    else:
        assert (found.code, found.status) == ("NotProxy", "skipped")


@pytest.mark.parametrize(("provider", "annotations", "problem"), REFUSED, ids=_id)
def test_a_value_that_its_controller_refuses_is_an_error_and_nothing_else(
    provider: str, annotations: Mapping[str, str], problem: str
) -> None:
    found = detected(annotations)
    assert (found.versions, found.proxy) == ({}, False)
    assert (found.code, found.status) == ("BadAnnotation", "refused")
    assert problem in found.reason
    assert f"({provider})" in found.reason
    assert len(found.reason) < 400
    assert found.reason.isprintable()


def test_a_load_balancer_of_digitalocean_whose_type_is_not_said_may_send_no_header() -> None:
    (remark,) = detected({DO: "true"}).remarks
    assert all(word in remark for word in ("network load balancer", "doctl compute load-balancer list"))
    assert detected({DO: "true", DO_TYPE: "REGIONAL"}).remarks == ()


@pytest.mark.parametrize("provider_id", ["hcloud://1", "gce://project/zone/node", ""])
def test_loxilb_is_believed_on_any_cloud_and_for_its_class_alone(provider_id: str) -> None:
    mine = three_ports({LOXILB: "yes"})
    assert identify(mine, LoadBalancerOptions(), provider_id).versions == ALL_V2
    assert not identify(replace(mine, load_balancer_class=None), LoadBalancerOptions(), provider_id).proxy


@pytest.mark.parametrize("of_class", ["service.k8s.aws/nlb", "eks.amazonaws.com/nlb"])
def test_a_load_balancer_class_shows_which_controller_reads_the_annotations(of_class: str) -> None:
    """AWS has three that share keys; EKS Auto Mode has a class of its own."""
    classed = service(annotations={AWS: "*", AWS_TYPE: "nlb"}, load_balancer_class=of_class)
    found = identify(classed, LoadBalancerOptions(), "")
    assert found.versions == {80: "v2", 443: "v2"}
    assert found.reason.endswith("(AWS (Load Balancer Controller))")


def test_every_row_is_tested_switched_on_and_switched_off_or_refused() -> None:
    """A new provider needs its cases here."""
    names = {provider.name for provider in PROVIDERS if provider.switches}
    assert names == {name for name, _, ports in READ if ports}
    assert names == {name for name, _, ports in READ if not ports} | {name for name, _, _ in REFUSED}


def test_no_key_is_in_two_rows_that_apply_to_one_service() -> None:
    """Else one annotation would contradict itself."""
    for kind in ("", "nlb", "external"):
        found = service(annotations={AWS_TYPE: kind} if kind else {})
        keys = [key for provider in PROVIDERS if provider.applies(found) for key in provider.switches]
        assert len(keys) == len(set(keys))


def test_schemes_are_the_part_before_the_colon_and_slashes() -> None:
    assert all(scheme and set(scheme).isdisjoint(":/ ") for scheme in KNOWN_SCHEMES)
