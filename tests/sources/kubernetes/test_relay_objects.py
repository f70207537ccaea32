import json
from ipaddress import ip_address
from pathlib import Path

import pytest

from nodeagent.model.objects import RelayEndpoint
from nodeagent.sources.manifests import read_manifests
from nodeagent.sources.objects.decoding import decode_relay_endpoints, decode_relay_service
from tests.apiserver import objects
from tests.cases import cases_of

CASES = cases_of(__file__, "cases.yaml")

RELAY = ("hairpin-proxy", "relay")


def endpoint_slice(**changes: object) -> bytes:
    made = objects.endpoint_slice(
        "relay-x",
        "relay",
        "hairpin-proxy",
        endpoints=[objects.Endpoint("10.244.0.5", "n1")],
        ports={"http": 80},
    )
    return json.dumps(made | changes).encode()


@pytest.mark.parametrize(("conditions", "ready"), CASES["ready"])
def test_ready_is_as_the_api_means_it(conditions: object, ready: bool) -> None:
    (found,) = decode_relay_endpoints(
        endpoint_slice(endpoints=[{"addresses": ["10.244.0.5"], "conditions": conditions}])
    )
    assert found.ready is ready
    assert found.node_name is None


@pytest.mark.parametrize("changes", CASES["endpoints"])
def test_what_can_not_be_sent_to_is_passed_over(changes: dict[str, object]) -> None:
    assert decode_relay_endpoints(endpoint_slice(**changes)) == ()


@pytest.mark.parametrize("address", ["None", ""])
def test_a_headless_relay_service_has_no_address(address: str) -> None:
    made = objects.service("relay", "hairpin-proxy", cluster_ips=[address])
    assert decode_relay_service(made).cluster_ips == ()


def test_manifests_hold_the_relay_too(tmp_path: Path) -> None:
    near, far = objects.Endpoint("10.244.0.5", "n1"), objects.Endpoint("10.244.1.5", "n2")
    made = [
        objects.service("relay", "hairpin-proxy", cluster_ips=["10.96.0.9"]),
        objects.service("relay", "default", cluster_ips=["10.96.0.10"]),
        objects.endpoint_slice("relay-x", "relay", "hairpin-proxy", endpoints=[near], ports={"http": 80}),
        objects.endpoint_slice(
            "relay-y", "relay", "hairpin-proxy", endpoints=[near, far], ports={"http": 80}
        ),
        objects.endpoint_slice("relay-z", "relay", "default", endpoints=[far], ports={"http": 81}),
        objects.endpoint_slice("other", "other", "hairpin-proxy", endpoints=[far], ports={"http": 82}),
    ]
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": made}), encoding="utf-8")
    found = read_manifests(tmp_path, "n1", RELAY)
    assert found.relay_service is not None
    assert found.relay_service.ref.path == "hairpin-proxy/relay"
    assert found.relay_endpoints == tuple(
        RelayEndpoint(ip_address(at.address), "http", 80, at.node, ready=True) for at in (near, far)
    )
    without = read_manifests(tmp_path, "n1")
    assert (without.relay_service, without.relay_endpoints) == (None, ())
