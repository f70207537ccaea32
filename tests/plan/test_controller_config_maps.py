"""`loadBalancers.controllerConfigMaps`: if no annotation shows it, the controller's configuration does."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from nodeagent.model.desired import Desired, Verdict
from nodeagent.model.objects import ConfigMap, ObjectRef, Service
from tests.plan.made_up import NODE, config, desired, of_service, redirects, service

HETZNER = "load-balancer.hetzner.cloud/uses-proxyprotocol"
AWS = "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol"
ENTRY = "{namespace: ingress, name: blue}"


def planned(data: Mapping[str, str] | None, entry: str = ENTRY, found: Service | None = None) -> Desired:
    """The plan with a ConfigMap ingress/blue that holds these data, or without one."""
    ref = ObjectRef("ConfigMap", "ingress", "blue")
    maps = () if data is None else (ConfigMap(ref, data),)
    node = replace(NODE, provider_id="hcloud://1")
    options = config(f"loadBalancers: {{controllerConfigMaps: [{entry}]}}")
    return desired(found or service(), *maps, node=node, options=options)


def test_another_service_key_version_and_ports_can_be_named() -> None:
    """As for F5's controller behind a load balancer that sends v2."""
    entry = (
        "{namespace: ingress, name: blue, key: proxy-protocol, service: {namespace: ingress, name: red}, "
        "proxyProtocol: v2, ports: [443]}"
    )
    plan = planned({"proxy-protocol": "True"}, entry, service("red"))
    assert of_service(plan, "red").reason.startswith("PROXY v2 on port 443: proxy-protocol=True in ConfigMap")
    assert set(redirects(plan)) == {"192.0.2.1:443"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "not known to send PROXY: there is no ConfigMap ingress/blue"),
        ({}, "not known to send PROXY: ConfigMap ingress/blue"),
        ({"use-proxy-protocol": "false"}, "no PROXY: use-proxy-protocol=false in ConfigMap ingress/blue"),
    ],
)
def test_a_controller_that_demands_no_proxy_leaves_its_service_alone(
    data: Mapping[str, str] | None, words: str
) -> None:
    """Absent, without the key, or switched off."""
    decision = of_service(planned(data))
    assert (decision.verdict, decision.code) == (Verdict.SKIPPED, "NotProxy")
    assert decision.reason.startswith(words)


def test_a_value_that_is_no_boolean_is_refused() -> None:
    """Nothing is guessed."""
    decision = of_service(planned({"use-proxy-protocol": "yes"}))
    assert (decision.verdict, decision.code) == (Verdict.REFUSED, "BadConfigMap")
    assert "'yes' is neither true nor false" in decision.reason


def test_another_clouds_left_over_annotation_is_not() -> None:
    """It says nothing about this cloud's load balancer."""
    found = service(annotations={AWS: "*"})
    assert of_service(planned({"use-proxy-protocol": "true"}, found=found)).code == "ControllerConfigMap"
    assert of_service(planned({"use-proxy-protocol": "false"}, found=found)).code == "NotProxy"
