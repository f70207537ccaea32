"""What the cluster of the virtual machines runs: objects that Kubernetes knows, and that fit each other."""

from __future__ import annotations

from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from nodeagent.config.reading import parse_config
from tests.daemonset.kustomize import render
from tests.daemonset.manifests import configuration, containers, pod
from tests.testbed.addresses import NAMES
from tests.testbed.certificates import make_certificates
from tests.testbed.vagrant.manifests import Object, manifests
from tests.testbed.vagrant.render import settings

_TESTBED = Path(__file__).parents[1]
_AGENT = _TESTBED / "vagrant" / "nodeagent"


@pytest.fixture
def objects(tmp_path: Path) -> list[Object]:
    """All of them."""
    make_certificates(tmp_path / "certificates", NAMES)
    return manifests(tmp_path / "certificates", "192.168.56.10")


def test_kubernetes_knows_every_field(objects: list[Object]) -> None:
    major, minor, _ = settings({})["K3S_VERSION"].removeprefix("v").split(".", 2)
    for obj in [*objects, *render(_AGENT)]:
        kubernetes_validate.validate(obj, f"{major}.{minor}", strict=True)


def test_nodeagent_is_configured_as_in_the_namespaces() -> None:
    objects = render(_AGENT)
    config = parse_config(configuration(objects), "vagrant")
    by_hand = yaml.safe_load((_TESTBED / "nodeagent.yaml").read_text("utf-8"))
    theirs = yaml.safe_load(configuration(objects))
    assert theirs["loadBalancers"] == by_hand["loadBalancers"]
    assert theirs["hosts"] == by_hand["hosts"] | {"file": "/host/etc/hosts"}
    assert str(config.hosts.file) == "/host/etc/hosts"
    assert containers(pod(objects))["agent"]["image"] == "nodeagent:vagrant"
