"""What deploys nodeagent, read in one way, whatever rendered it: a kustomization or the chart."""

import re
from collections.abc import Sequence

from nodeagent.cli.coredns import run as controller
from nodeagent.cli.doctor import doctor
from nodeagent.cli.run import run as agent
from nodeagent.config.reading import parse_config
from tests.cases import cases_of
from tests.daemonset.kustomize import DAEMONSET, Object, apply, render

COMPONENTS = (*sorted(path.name for path in (DAEMONSET / "components").iterdir()), "../coredns")
DEPLOYMENTS = ("base", *sorted(f"overlays/{path.name}" for path in (DAEMONSET / "overlays").iterdir()))
"""Each of these deploys the agent."""
RENDERED = (*DEPLOYMENTS, *COMPONENTS, "doctor")
"""What `deployed` renders by these names is all that daemonset/ runs."""


def deployed(name: str = "base", *components: str) -> list[Object]:
    """Render a kustomization with components; a component's name alone means the base with it."""
    if name in COMPONENTS:
        name, components = "base", (name, *components)
    objects = render(DAEMONSET / name)
    for component in components:
        objects = apply(DAEMONSET / "components" / component, objects)
    return objects


def the(objects: Sequence[Object], kind: str, name: str = "nodeagent") -> Object:
    (found,) = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def configuration(objects: Sequence[Object]) -> str:
    return str(the(objects, "ConfigMap")["data"]["nodeagent.yaml"])


class Workload:
    """A DaemonSet, Deployment or Job: each has pods of one container."""

    def __init__(self, found: Object) -> None:
        self.object = found
        self.name: str = found["metadata"]["name"]
        self.template: Object = found["spec"]["template"]
        self.spec: Object = self.template["spec"]
        self.container: Object
        (self.container,) = self.spec["containers"]
        self.environment = {one["name"]: one.get("value") for one in self.container.get("env", [])}
        """Each variable's value by its name, None for one that Kubernetes fills in."""
        volumes = self.spec["volumes"]
        self.host_paths = {one["name"]: one["hostPath"]["path"] for one in volumes if "hostPath" in one}
        """The paths of the host by the names of their volumes."""


def workloads(objects: Sequence[Object]) -> dict[str, Workload]:
    return {one["metadata"]["name"]: Workload(one) for one in objects if "template" in one.get("spec", {})}


def workload(objects: Sequence[Object], name: str = "nodeagent") -> Workload:
    return workloads(objects)[name]


_RIGHTS = cases_of(__file__, "rights.yaml")
_COMMANDS = {"agent": agent, "controller": controller, "doctor": doctor}


def assert_sound(objects: Sequence[Object]) -> None:
    """Assert what holds for whatever deploys nodeagent: least privilege, and names that mean something."""
    # The second of a name would fail, or replace the first.
    made = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects]
    assert len(made) == len(set(made))
    found = workloads(objects)
    for one in found.values():
        added = [*_RIGHTS[one.name]["capabilities"]]
        if one.name == "nodeagent":
            config = parse_config(configuration(objects), one.name)
            added += ["NET_RAW"] if config.dnat.backend == "iptables" else []
            mounts = {mount["mountPath"] for mount in one.container["volumeMounts"]}
            assert str(config.relay.run_dir) in mounts
            assert {str(config.hosts.file), str(config.hosts.file.parent)} & mounts
            assert ("nodeagent-relay" in found) == (config.relay.kind == "node")
            assert not config.relay.launch
        _assert_least_rights(one, added)
        _assert_environment(one)
        if "selector" in one.object["spec"]:
            selected = one.object["spec"]["selector"]["matchLabels"]
            # No workload takes another's pods for its own.
            labels = {each.name: each.template["metadata"]["labels"] for each in found.values()}
            matching = [name for name, its in labels.items() if selected.items() <= its.items()]
            assert matching == [one.name]


def _assert_least_rights(one: Workload, added: list[str]) -> None:
    spec, container = one.spec, one.container
    privileged = bool(added)
    assert not {"hostPID", "hostIPC", "shareProcessNamespace", "initContainers"} & spec.keys()
    assert spec.get("hostNetwork", False) is (privileged or one.name == "doctor")
    assert spec["automountServiceAccountToken"] is not privileged
    assert ("serviceAccountName" in spec) is (one.name != "nodeagent-relay")
    context = dict(spec["securityContext"])
    assert context.pop("seccompProfile") == {"type": "RuntimeDefault"}
    user = {"runAsUser": 65532, "runAsGroup": 65532, "runAsNonRoot": True}
    assert context == ({} if privileged else user)
    context = dict(container["securityContext"])
    assert context.pop("seLinuxOptions", {"type": "spc_t"}) == {"type": "spc_t"}
    assert context.pop("capabilities") == {"drop": ["ALL"]} | ({"add": added} if privileged else {})
    root = {"runAsUser": 0, "runAsGroup": 0} if privileged else {}
    assert context == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True} | root
    assert {*one.host_paths.values()} <= {*_RIGHTS[one.name]["hostPaths"]}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    if not privileged:
        assert all(mounts[name]["readOnly"] for name in one.host_paths)
    elif one.name == "nodeagent-relay":
        assert set(mounts) == {"run"}
    else:
        assert {"config", "token"} <= mounts.keys()
    assert "hostNetwork" not in spec or "ports" not in container, "it would be the host's"
    assert container["resources"]["limits"].keys() == {"memory"}
    if one.object["kind"] != "Job":
        assert "livenessProbe" in container
        assert ("startupProbe" in container) is privileged


def _assert_environment(one: Workload) -> None:
    """A NODEAGENT_... that is no option would be ignored; so would a reference before what it names."""
    names = list(one.environment)
    if one.container["name"] in _COMMANDS:
        assert names
        known = {str(each.envvar) for each in _COMMANDS[one.container["name"]].params}
        assert {name for name in names if name.startswith("NODEAGENT_")} <= known
    for number, value in enumerate(one.environment.values()):
        if one.container["name"] in _COMMANDS:
            assert {*re.findall(r"\$\((\w+)\)", value or "")} <= {*names[:number]}
