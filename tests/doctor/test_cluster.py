"""Against a live API: the cluster's version, its DNS, and what RBAC keeps back."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver import Rule, custom, objects
from tests.daemon.cluster_api import ClusterApi
from tests.doctor.states import Scene
from tests.root import needs_root
from tests.testbed.addresses import LB
from tests.testbed.namespaces import Host

pytestmark = needs_root

_ROOT = Path(__file__).parents[2]
_READS = [
    Rule([""], ["services", "nodes"], ["list"]),
    Rule(["networking.k8s.io"], ["ingresses", "ingressclasses"], ["list"]),
    Rule(["discovery.k8s.io"], ["endpointslices"], ["list"], ["kubernetes"]),
]


@dataclass(frozen=True)
class Clinic:
    """A doctor with a kubeconfig."""

    scene: Scene
    api: ClusterApi

    def examine(self, host: Host, *options: str) -> tuple[int, dict[str, Any]]:
        """Return the exit code, and the findings by code."""
        objects = ["--kubeconfig", str(self.api.kubeconfig), "--config", str(self.scene.agent.config)]
        done = host.run(
            [sys.executable, "-P", "-m", "nodeagent", "doctor", *objects, "-o", "json", *options],
            check=False,
            timeout=60,
            env={"PYTHONPATH": str(_ROOT)},
        )
        assert done.stderr == ""
        return done.returncode, {finding["code"]: finding for finding in json.loads(done.stdout)["findings"]}


@pytest.fixture(scope="module")
def clinic(scene: Scene) -> Iterator[Clinic]:
    with ClusterApi(scene.world.lb, scene.world.tmp) as api:
        # The world's DNS server takes the place of CoreDNS.
        dns = objects.Port("dns", 53, 53, protocol="UDP")
        api.store.create(objects.service("kube-dns", "kube-system", cluster_ips=[str(LB)], ports=[dns]))
        yield Clinic(scene, api)


def test_a_broken_node_of_a_known_provider(clinic: Clinic) -> None:
    service = clinic.api.store.get("services", "ingress-nginx-controller", "ingress-nginx")
    service["metadata"]["annotations"] = {"load-balancer.hetzner.cloud/uses-proxyprotocol": "true"}
    clinic.api.store.update(service)
    exit_code, found = clinic.examine(clinic.scene.world.node1, "--node", "node1")
    assert exit_code == 2
    balancer = found["ShortCircuited"]
    assert "Kubernetes v1.36.0" in balancer["evidence"]
    assert (
        "$ kubectl annotate service -n ingress-nginx ingress-nginx-controller "
        "load-balancer.hetzner.cloud/hostname=lb.example.com"
    ) in balancer["remedy"]
    assert "nodeagent" not in balancer["remedy"][0]
    assert any("crictl pull REF" in line for line in balancer["evidence"])
    assert found["NameAtLoadBalancer"]["evidence"] == [
        "this host's resolver: 203.0.113.10",
        "upstream DNS: 203.0.113.10",
        "CoreDNS: 203.0.113.10",
        "nodeagent: served: covered by hosts.allow: example.test [Allowed]",
    ]


def test_a_hostname_of_a_proxy_load_balancer_that_has_no_address_is_named(clinic: Clinic) -> None:
    name = "lost.example.test"
    clinic.api.store.create(objects.ingress("lost", hosts=[name], addresses=["203.0.113.10"]))
    found = clinic.examine(clinic.scene.world.node1, "--node", "node1", "--host", name)[1]
    clinic.api.store.delete("ingresses", "lost", "default")
    assert found["NameUnknown"]["subject"] == name


def test_a_kind_that_claims_hostnames_and_is_not_read_is_named(clinic: Clinic) -> None:
    kinds = custom("ako.vmware.com", "v1beta1", "HostRule")
    clinic.api.store.serve(*kinds)
    try:
        exit_code, found = clinic.examine(clinic.scene.world.node1, "--node", "node1")
    finally:
        clinic.api.withdraw(*kinds)
    assert exit_code == 2
    assert found["KindsNotRead"]["subject"] == "hostrules.ako.vmware.com"


def test_what_rbac_denies_is_reported_and_the_rest_is_judged(clinic: Clinic) -> None:
    clinic.api.access.allow_only(_READS)
    try:
        exit_code, found = clinic.examine(clinic.scene.world.node1, "--node", "node1")
    finally:
        clinic.api.access.allow_all()
    assert exit_code == 2
    assert "this user may not read it" in found["NameAtLoadBalancer"]["evidence"][2]
    assert "ShortCircuitedAndCut" in found


def test_from_a_laptop_the_objects_alone_speak(clinic: Clinic) -> None:
    exit_code, found = clinic.examine(clinic.scene.world.client, "--node", "node1")
    assert exit_code == 2
    assert found.keys() == {"ShortCircuitedByObject", "AgentAbsent", "NotThisNode"}
    assert "192.0.2.11" in found["NotThisNode"]["seen"]
