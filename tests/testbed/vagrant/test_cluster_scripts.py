"""cluster.sh, nodeagent.sh and joined.sh, run whole without the internet; programs replace k3s and buildah.

The replacements note each call and keep what was applied. The one for k3s answers as a young API server:
not at first.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from tests.daemonset.kustomize import render
from tests.testbed.addresses import REGISTRY_PORT
from tests.testbed.fixtures import needs_root
from tests.testbed.vagrant.machine_root import REPOSITORY
from tests.testbed.vagrant.manifests import REGISTRY_CLUSTER_IP, manifests
from tests.testbed.vagrant.render import settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from subprocess import CompletedProcess

    from tests.testbed.vagrant.machine_root import MachineRoot

pytestmark = needs_root

_CERTIFICATES = "/etc/testbed/certificates"
_AGENT = "/vagrant/tests/testbed/vagrant/nodeagent"
_PATH = "/stand-ins:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_NOTED = """#!/bin/sh
# Stands for a program that can't be had or has nobody to speak to: notes its call, and fails where it is to.
call="${0##*/} $*"
echo "$call" >>/noted/calls
if grep -q -F -x -e "$call" /noted/failing; then
    echo "refused: $call" >&2
    exit 1
fi
"""
_K3S = f"""{_NOTED}
case "$*" in
"kubectl apply -f -") cat >/noted/applied ;;
"kubectl get serviceaccount default" | *" wait --for=condition=Ready "*)
    # Not there yet when asked for the first time.
    test "$(grep -c -F -x -e "$call" /noted/calls)" -gt 1 || exit 1
    echo there
    ;;
esac
"""
_NOT_INSTALLED = (
    "#!/bin/sh\n# Stands for dpkg's, on a machine as the box has it: nothing is installed.\nexit 1\n"
)

_ASKED = "k3s kubectl get serviceaccount default"
_APPLY = "k3s kubectl apply -f -"
_ROLLOUT = "k3s kubectl --namespace registry rollout status deployment/registry --timeout=300s"
_PUSH = f"buildah push --quiet --tls-verify=false localhost/pulled:1 docker://{REGISTRY_CLUSTER_IP}:{REGISTRY_PORT}/testbed:1"
_APPLY_AGENT = f"k3s kubectl apply --kustomize {_AGENT}"
_DELETE_PODS = (
    "k3s kubectl delete --ignore-not-found --cascade=foreground --namespace nodeagent daemonset/nodeagent"
)
_DELETE_AGENT = f"k3s kubectl delete --ignore-not-found --kustomize {_AGENT}"
_WAIT = (
    "k3s kubectl --kubeconfig /var/lib/rancher/k3s/agent/kubelet.kubeconfig"
    " wait --for=condition=Ready node/node1 --timeout=10s"
)


class _Run(NamedTuple):
    """What a script answered, what it called, one a line, and what it applied."""

    done: CompletedProcess[str]
    calls: list[str]
    applied: str


@pytest.fixture(scope="module")
def cp(machines: Mapping[str, MachineRoot]) -> MachineRoot:
    """The machine cp with its certificates."""
    done = machines["cp"].provision("files.sh")
    assert done.returncode == 0, done.stderr
    return _with_stand_ins(machines["cp"])


@pytest.fixture(scope="module")
def node1(machines: Mapping[str, MachineRoot]) -> MachineRoot:
    """The machine node1."""
    return _with_stand_ins(machines["node1"])


@pytest.fixture(scope="module")
def cluster(cp: MachineRoot) -> _Run:
    """cluster.sh to its end."""
    return _provision(cp, "cluster.sh")


def test_the_cluster_is_set_up_in_an_order_that_works(cluster: _Run) -> None:
    """The API and PyYAML are there before anything is applied, and the registry before it is pushed to."""
    assert cluster.done.returncode == 0, cluster.done.stderr
    install = "apt-get -q install --yes --no-install-recommends python3-yaml"
    packages = ["apt-get -q update", install]
    assert cluster.calls == [_ASKED, _ASKED, *packages, _APPLY, _ROLLOUT, _PUSH]


def test_what_is_applied_is_the_manifests_with_this_machines_certificate(
    cluster: _Run, cp: MachineRoot, tmp_path: Path
) -> None:
    for name in ("server.crt", "server.key"):
        (tmp_path / name).write_text(cp.read(f"{_CERTIFICATES}/{name}"), "ascii")
    applied = yaml.safe_load(cluster.applied)
    assert (applied["apiVersion"], applied["kind"]) == ("v1", "List")
    assert applied["items"] == manifests(tmp_path, settings({})["LB_ADDRESS"])
    served = _named(applied["items"], "Secret", "tls")["data"]["tls.crt"]
    assert base64.b64decode(served) == (tmp_path / "server.crt").read_bytes()


def test_the_rollout_and_the_push_are_to_what_was_applied(cluster: _Run) -> None:
    applied = yaml.safe_load(cluster.applied)["items"]
    deployment = _named(applied, "Deployment", "registry")
    assert deployment["metadata"]["namespace"] == "registry"
    service = _named(applied, "Service", "registry")["spec"]
    (port,) = service["ports"]
    assert f"docker://{service['clusterIP']}:{port['port']}/" in cluster.calls[-1]


@pytest.mark.parametrize("broken", [_APPLY, _ROLLOUT])
def test_nothing_is_pushed_to_a_registry_that_does_not_run(cp: MachineRoot, broken: str) -> None:
    failed = _provision(cp, "cluster.sh", failing=broken)
    assert failed.done.returncode == 1
    assert f"refused: {broken}" in failed.done.stderr
    assert failed.calls[-1] == broken


def test_without_certificates_the_script_fails_whatever_kubectl_says(cp: MachineRoot) -> None:
    cp.run(["mv", _CERTIFICATES, f"{_CERTIFICATES}.away"])
    try:
        failed = _provision(cp, "cluster.sh")
    finally:
        cp.run(["mv", f"{_CERTIFICATES}.away", _CERTIFICATES])
    assert failed.done.returncode == 1
    assert f"{_CERTIFICATES}/server.crt" in failed.done.stderr
    assert failed.applied == ""
    assert _PUSH not in failed.calls


@pytest.mark.parametrize("variables", [{}, {"NODEAGENT": "1"}], ids=["by default", "NODEAGENT=1"])
def test_nodeagent_is_installed_by_its_kustomization(cp: MachineRoot, variables: dict[str, str]) -> None:
    run = _provision(cp, "nodeagent.sh", **variables)
    assert run.done.returncode == 0, run.done.stderr
    assert run.calls == [_APPLY_AGENT]
    directory = REPOSITORY / Path(run.calls[0].split()[-1]).relative_to("/vagrant")
    agent = _named(render(directory), "DaemonSet", "nodeagent")
    assert agent["metadata"]["namespace"] == "nodeagent", "the one that NODEAGENT=0 takes out first"


def test_nodeagent_is_taken_out_with_its_rights_last(cp: MachineRoot) -> None:
    """Its pods clean the nodes up while they end, and need their rights and configuration until then."""
    run = _provision(cp, "nodeagent.sh", NODEAGENT="0")
    assert run.done.returncode == 0, run.done.stderr
    assert run.calls == [_DELETE_PODS, _DELETE_AGENT]


def test_pods_that_do_not_end_keep_their_rights(cp: MachineRoot) -> None:
    run = _provision(cp, "nodeagent.sh", failing=_DELETE_PODS, NODEAGENT="0")
    assert run.done.returncode == 1
    assert run.calls == [_DELETE_PODS]


def test_a_node_has_joined_when_it_is_ready(node1: MachineRoot) -> None:
    """It asks with the kubelet's credentials, for a node has no others, and again until the answer is yes."""
    run = _provision(node1, "joined.sh", NODE_NAME="node1")
    assert (run.done.returncode, run.done.stdout) == (0, "there\n"), run.done.stderr
    assert run.calls == [_WAIT, _WAIT]


def test_a_node_without_a_name_is_refused(node1: MachineRoot) -> None:
    run = _provision(node1, "joined.sh")
    assert run.done.returncode != 0
    assert "NODE_NAME: the name of this node" in run.done.stderr
    assert run.calls == []


def _with_stand_ins(machine: MachineRoot) -> MachineRoot:
    programs = {"k3s": _K3S, "buildah": _NOTED, "apt-get": _NOTED, "dpkg-query": _NOT_INSTALLED}
    for name, text in programs.items():
        machine.write(f"/stand-ins/{name}", text)
        machine.run(["chmod", "755", f"/stand-ins/{name}"])
    return machine


def _provision(machine: MachineRoot, script: str, failing: str = "", **variables: str) -> _Run:
    """Run a script with nothing noted before; the call `failing` is refused."""
    for name in ("calls", "applied"):
        machine.write(f"/noted/{name}", "")
    machine.write("/noted/failing", failing and f"{failing}\n")
    done = machine.provision(script, PATH=_PATH, **variables)
    return _Run(done, machine.read("/noted/calls").splitlines(), machine.read("/noted/applied"))


def _named(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found
