"""The manifests are ones that Kubernetes takes, and say what the design demands of them."""

import json
from fnmatch import fnmatch
from pathlib import Path

import click
import pytest
import yaml

from nodeagent.cli.coredns import run as controller
from nodeagent.cli.run import run as agent
from nodeagent.components.relay import haproxy_config
from nodeagent.config.reading import parse_config
from tests.daemonset.kubernetes_schemas import VERSIONS, validate
from tests.daemonset.kustomize import DAEMONSET, Object, render
from tests.daemonset.manifests import (
    COMPONENTS,
    DEPLOYMENTS,
    configuration,
    containers,
    pod,
    the,
    with_components,
)

_HOST_PATHS = {
    "nodeagent": {"/etc", "/etc/hosts", "/run/nodeagent", "/run/systemd/resolve", "/run/xtables.lock"},
    "nodeagent-relay": {"/run/nodeagent/relay"},
}


def all_objects(directory: Path) -> list[Object]:
    """All that deployments, components and the doctor make, once; kustomizations go to the directory."""
    found = [one for deployment in DEPLOYMENTS for one in render(DAEMONSET / deployment)]
    for component in (*COMPONENTS, "../coredns"):
        found += render(with_components(directory, "base", component))
    found += render(DAEMONSET / "doctor")
    return list({json.dumps(one): one for one in found}.values())


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """All of them, for several tests."""
    return all_objects(tmp_path_factory.mktemp("kustomizations"))


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(version: str, objects: list[Object]) -> None:
    """Strictly: no field that this version would drop or refuse."""
    for found in objects:
        validate(found, version)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_agent_takes_the_configuration(deployment: str) -> None:
    objects = render(DAEMONSET / deployment)
    config = parse_config(configuration(objects), deployment)
    mounts = {mount["mountPath"] for mount in containers(pod(objects))["agent"]["volumeMounts"]}
    assert str(config.relay.run_dir) in mounts
    assert str(config.hosts.file.parent) in mounts
    relays = [one for one in objects if one["metadata"]["name"] == "nodeagent-relay"]
    assert len(relays) == (config.relay.kind == "node")
    assert not config.relay.launch


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_example_of_a_service_is_right(deployment: str) -> None:
    """Uncommented, the example is a configuration that means what it seems to."""
    text = configuration(render(DAEMONSET / deployment))
    config = parse_config(text.replace("services: []", "services:").replace("# - {", "- {"), deployment)
    assert [one.proxy_protocol for one in config.load_balancers.services] == ["v1"]


def test_kyvernos_exceptions_cover_what_is_deployed(objects: list[Object]) -> None:
    """All that the namespace runs: the DaemonSets by their names, and the controllers."""
    covered = [
        (kind, name)
        for exception in yaml.safe_load_all((DAEMONSET / "admission" / "kyverno.yaml").read_text("utf-8"))
        for match in exception["spec"]["match"]["any"]
        for kind in match["resources"]["kinds"]
        for name in match["resources"]["names"]
    ]
    for one in objects:
        if "template" in one.get("spec", {}) and one["metadata"]["namespace"] == "nodeagent":
            names = [pattern for kind, pattern in covered if kind == one["kind"]]
            assert any(fnmatch(one["metadata"]["name"], pattern) for pattern in names)


@pytest.mark.parametrize("command", [agent, controller])
def test_what_the_environment_calls_an_option_is_one(command: click.Command, objects: list[Object]) -> None:
    """NODEAGENT_... is passed over in silence when no option has that name."""
    name = "agent" if command is agent else "controller"
    used = {
        variable["name"]
        for one in objects
        if "template" in one.get("spec", {})
        for container in containers(one["spec"]["template"]["spec"]).values()
        if container["name"] == name
        for variable in container["env"]
    }
    assert used
    known = {str(one.envvar) for one in command.params}
    assert {variable for variable in used if variable.startswith("NODEAGENT_")} <= known


@pytest.mark.parametrize("name", [*DEPLOYMENTS, *COMPONENTS])
def test_every_deployment_is_as_secure_as_it_can_be_and_components_keep_it_so(
    name: str, tmp_path: Path
) -> None:
    """Least privilege, container by container: these rights, and no others."""
    directory = with_components(tmp_path, "base", name) if name in COMPONENTS else DAEMONSET / name
    objects = render(directory)
    added = {"nodeagent": ["NET_ADMIN"], "nodeagent-relay": ["NET_BIND_SERVICE"]}
    if name == "overlays/existing-relay":
        del added["nodeagent-relay"]
    elif name == "overlays/iptables":
        added["nodeagent"].append("NET_RAW")
    found = {one["metadata"]["name"]: one for one in objects if one["kind"] == "DaemonSet"}
    assert found.keys() == added.keys()
    for workload, capabilities in added.items():
        spec = pod(objects, name=workload)
        assert not {"hostPID", "hostIPC", "shareProcessNamespace"} & spec.keys()
        assert spec["automountServiceAccountToken"] is False
        assert ("serviceAccountName" in spec) is (workload == "nodeagent")
        assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
        paths = {one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
        assert paths <= _HOST_PATHS[workload]
        (container,) = containers(spec).values()
        context = dict(container["securityContext"])
        assert context.pop("seLinuxOptions", {"type": "spc_t"}) == {"type": "spc_t"}
        assert context == {
            "runAsUser": 0,
            "runAsGroup": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": capabilities},
        }
        assert "ports" not in container, "it would be the host's"
        assert container["resources"]["limits"]["memory"]
        assert {"startupProbe", "livenessProbe"} <= container.keys()
        mounted = {one["name"] for one in container["volumeMounts"]}
        assert {"config", "token"} <= mounted if workload == "nodeagent" else mounted == {"run"}


def test_the_liveness_probe_asks_where_haproxy_answers_before_and_after_the_agent_has_configured_it() -> None:
    (relay,) = containers(pod(render(DAEMONSET / "base"), name="nodeagent-relay")).values()
    page = relay["livenessProbe"]["httpGet"]
    bind = f"    bind {page['host']}:{page['port']}\n    "
    base = next(one["value"] for one in relay["env"] if one["name"] == "BASE")
    for text in (base, haproxy_config.render([])):
        health = text.partition("frontend health\n")[2].partition("\n\n")[0]
        assert bind in f"{health}\n    "
        assert f"monitor-uri {page['path']}" in health


def test_the_prometheus_annotations_are_where_the_agent_listens(tmp_path: Path) -> None:
    objects = render(with_components(tmp_path, "base", "metrics"))
    annotations = the(objects, "DaemonSet")["spec"]["template"]["metadata"]["annotations"]
    environment = {one["name"]: one for one in containers(pod(objects))["agent"]["env"]}
    assert (
        environment["NODEAGENT_TELEMETRY_LISTEN"]["value"]
        == f"$(HOST_IP):{annotations['prometheus.io/port']}"
    )
    # A reference to a variable counts only if the variable is defined before it.
    assert list(environment).index("HOST_IP") < list(environment).index("NODEAGENT_TELEMETRY_LISTEN")
    monitor, _ = yaml.safe_load_all((DAEMONSET / "monitoring/podmonitor.yaml").read_text("utf-8"))
    replaced = [
        one.get("replacement", "") for one in monitor["spec"]["podMetricsEndpoints"][0]["relabelings"]
    ]
    assert "$1:9467" in replaced


def test_every_capability_and_host_path_has_its_reason_in_the_documentation() -> None:
    objects = render(DAEMONSET / "base")
    page = (DAEMONSET.parent / "docs" / "security.md").read_text("utf-8")
    table = page.partition("## Privileges, and why")[2].partition("\n## ")[0]
    for spec in (pod(objects), pod(objects, name="nodeagent-relay")):
        for container in containers(spec).values():
            for capability in container["securityContext"]["capabilities"].get("add", []):
                assert f"`{capability}`" in table
        for volume in spec["volumes"]:
            if "hostPath" in volume:
                assert f"`{volume['hostPath']['path']}`" in table
