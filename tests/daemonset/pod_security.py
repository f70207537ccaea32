"""What is not as it must be about a pod of ours, in words: least privilege, container by container."""

from collections.abc import Iterator, Mapping, Sequence

from tests.daemonset.kustomize import Object
from tests.daemonset.manifests import containers

_HOST_PATHS = {"/etc", "/etc/hosts", "/run/nodeagent", "/run/systemd/resolve", "/run/xtables.lock"}
_SUPERVISED = (
    ["python", "-m", "nodeagent.supervisor", "nodeagent", "run"],
    ["python", "-m", "nodeagent.components.sidecar", "/run/nodeagent-relay"],
)
_AGENT_ONLY = {"etc", "resolved", "run", "xtables-lock", "config", "token"}


def faults(spec: Object, capabilities: Mapping[str, Sequence[str]]) -> list[str]:
    """List them.

    Args:
        spec: the pod's.
        capabilities: its containers, each with the capabilities that it may have: these and no others.
    """
    return [*_of_pod(spec, capabilities), *_of_containers(spec, capabilities)]


def _of_pod(spec: Object, capabilities: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if containers(spec).keys() != capabilities.keys():
        yield f"containers {sorted(containers(spec))}"
    for field in ("hostPID", "hostIPC", "shareProcessNamespace"):
        if spec.get(field):
            yield field
    if spec.get("automountServiceAccountToken") is not False:
        yield "a token for every container"
    if spec.get("securityContext") != {"seccompProfile": {"type": "RuntimeDefault"}}:
        yield "not seccomp's RuntimeDefault"
    for volume in spec["volumes"]:
        if "hostPath" in volume and volume["hostPath"]["path"] not in _HOST_PATHS:
            yield f"the node's {volume['hostPath']['path']}"


def _of_containers(spec: Object, capabilities: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for name, container in containers(spec).items():
        context = dict(container.get("securityContext", {}))
        selinux = context.pop("seLinuxOptions", {"type": "spc_t"})
        wanted: Object = {"drop": ["ALL"]}
        if capabilities.get(name):
            wanted["add"] = list(capabilities[name])
        strict = {
            "runAsUser": 0,
            "runAsGroup": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": wanted,
        }
        if context != strict or selinux != {"type": "spc_t"}:
            yield f"{name}: {container.get('securityContext')}"
        if "ports" in container:
            yield f"{name}: a port, which is the host's"
        if not container["resources"].get("limits", {}).get("memory"):
            yield f"{name}: memory without limit"
        if container["command"] not in _SUPERVISED:
            yield f"{name}: nothing starts it again: {container['command']}"
        if name != "agent" and (foreign := {one["name"] for one in container["volumeMounts"]} & _AGENT_ONLY):
            yield f"{name}: mounts the agent's {', '.join(sorted(foreign))}"
