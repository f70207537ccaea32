"""The manifests are ones that Kubernetes takes, and say what the design demands of them."""

import json
import os
import shutil
import subprocess
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
import yaml

from nodeagent import __version__
from nodeagent.components.relay import haproxy_config
from nodeagent.config.reading import parse_config
from tests.daemonset import manifests
from tests.daemonset.kubernetes_schemas import VERSIONS, validate
from tests.daemonset.kustomize import DAEMONSET, Object, documents, render, text
from tests.daemonset.manifests import configuration, deployed, workload, workloads


@cache
def all_objects() -> dict[str, Object]:
    """All that daemonset/ makes, once, by their text."""
    found = [one for name in manifests.RENDERED for one in deployed(name)]
    return {json.dumps(one, sort_keys=True): one for one in found}


def _by_identity(objects: list[Object]) -> dict[str, Object]:
    return {
        f"{one['kind']} {one['metadata'].get('namespace', '-')}/{one['metadata']['name']}": one
        for one in objects
    }


def _with(directory: Path, component: str) -> Path:
    """A kustomization of the base with a component."""
    root = os.path.relpath(DAEMONSET, directory.resolve())
    text = f"resources: [{root}/base]\ncomponents: [{root}/components/{component}]\n"
    (directory / "kustomization.yaml").write_text(text)
    return directory


def test_the_rendered_file_is_the_base() -> None:
    rendered = (DAEMONSET / "deploy.yaml").read_text("utf-8")
    assert rendered == text(DAEMONSET), "run `make deploy`"
    assert documents(rendered) == deployed()


@pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="no kubectl with its kustomize here to compare with"
)
@pytest.mark.parametrize("name", [".", "monitoring", *manifests.RENDERED])
def test_kubectl_renders_the_same(name: str, tmp_path: Path) -> None:
    directory = _with(tmp_path, name) if name in manifests.COMPONENTS else DAEMONSET / name
    told = subprocess.run(
        ["kubectl", "kustomize", "--load-restrictor=LoadRestrictionsNone", str(directory)],
        capture_output=True,
        text=True,
        check=True,
        # Its few megabytes of garbage are not worth a quarter of its time.
        env=os.environ | {"GOGC": "off"},
    )
    assert _by_identity(documents(told.stdout)) == _by_identity(render(directory))


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(version: str) -> None:
    for found in all_objects().values():
        validate(found, version)


@pytest.mark.parametrize("name", manifests.RENDERED)
def test_everything_has_least_privilege_and_means_something(name: str) -> None:
    objects = deployed(name)
    manifests.assert_sound(objects)
    for one in workloads(objects).values():
        assert one.container["image"] == f"nodeagent:{__version__}"
        # Virtual nodes run no DaemonSet's pods.
        assert ("fargate" in str(one.spec.get("affinity"))) is (one.object["kind"] == "DaemonSet")


@pytest.mark.parametrize("deployment", manifests.DEPLOYMENTS)
def test_the_example_of_a_service_is_right(deployment: str) -> None:
    """Uncommented, the example is a configuration that means what it seems to."""
    example = configuration(deployed(deployment))
    config = parse_config(example.replace("services: []", "services:").replace("# - {", "- {"), deployment)
    assert [one.proxy_protocol for one in config.load_balancers.services] == ["v1"]


def test_kyvernos_exceptions_cover_what_is_deployed() -> None:
    """All that the namespace runs: the DaemonSets by their names, and the controllers."""
    covered = [
        (kind, name)
        for exception in yaml.safe_load_all((DAEMONSET / "admission" / "kyverno.yaml").read_text("utf-8"))
        for match in exception["spec"]["match"]["any"]
        for kind in match["resources"]["kinds"]
        for name in match["resources"]["names"]
    ]
    for one in all_objects().values():
        if "template" in one.get("spec", {}) and one["metadata"]["namespace"] == "nodeagent":
            names = [pattern for kind, pattern in covered if kind == one["kind"]]
            assert any(fnmatch(one["metadata"]["name"], pattern) for pattern in names)


def test_gatekeepers_exemption_is_of_the_namespace() -> None:
    patch = yaml.safe_load((DAEMONSET / "admission" / "gatekeeper.yaml").read_text("utf-8"))
    assert patch == {"spec": {"match": {"excludedNamespaces": ["nodeagent"]}}}


def test_the_liveness_probe_asks_where_haproxy_answers_before_and_after_the_agent_has_configured_it() -> None:
    relay = workload(deployed(), "nodeagent-relay")
    page = relay.container["livenessProbe"]["httpGet"]
    bind = f"    bind {page['host']}:{page['port']}\n    "
    for config in (relay.environment["BASE"], haproxy_config.render([])):
        health = config.partition("frontend health\n")[2].partition("\n\n")[0]
        assert bind in f"{health}\n    "
        assert f"monitor-uri {page['path']}" in health


def test_the_prometheus_annotations_are_where_the_agent_listens() -> None:
    agent = workload(deployed("metrics"))
    port = agent.template["metadata"]["annotations"]["prometheus.io/port"]
    assert agent.environment["NODEAGENT_TELEMETRY_LISTEN"] == f"$(HOST_IP):{port}"
    monitor, _ = yaml.safe_load_all((DAEMONSET / "monitoring/podmonitor.yaml").read_text("utf-8"))
    relabelings = monitor["spec"]["podMetricsEndpoints"][0]["relabelings"]
    assert f"$1:{port}" in [one.get("replacement", "") for one in relabelings]


def test_every_capability_and_host_path_has_its_reason_in_the_documentation() -> None:
    page = (DAEMONSET.parent / "docs" / "security.md").read_text("utf-8")
    table = page.partition("## Privileges, and why")[2].partition("\n## ")[0]
    for one in workloads(deployed()).values():
        for name in (*one.container["securityContext"]["capabilities"]["add"], *one.host_paths.values()):
            assert f"`{name}`" in table
