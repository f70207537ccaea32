"""What daemonset/ contains, as tests look at it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.daemonset.kustomize import DAEMONSET, Object

OVERLAYS = tuple(sorted(path.name for path in (DAEMONSET / "overlays").iterdir()))
COMPONENTS = tuple(sorted(path.name for path in (DAEMONSET / "components").iterdir()))
DEPLOYMENTS = ("base", *(f"overlays/{name}" for name in OVERLAYS))
"""Each of these deploys the agent."""
KUSTOMIZATIONS = (".", *DEPLOYMENTS, "monitoring")


def with_components(directory: Path, deployment: str, *components: str) -> Path:
    """Write a kustomization of a deployment with components, as a user's own; returns its directory."""

    def relative(path: Path) -> str:
        return os.path.relpath(path, directory.resolve())

    lines = ["resources:", f"  - {relative(DAEMONSET / deployment)}", "components:"]
    lines += [f"  - {relative(DAEMONSET / 'components' / name)}" for name in components]
    (directory / "kustomization.yaml").write_text("\n".join(lines) + "\n")
    return directory


def the(objects: Sequence[Object], kind: str, name: str = "nodeagent") -> Object:
    """The one object of that kind and name."""
    (found,) = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def pod(objects: Sequence[Object], kind: str = "DaemonSet", name: str = "nodeagent") -> Object:
    """The pod's spec in a workload, by default the DaemonSet."""
    spec: Object = the(objects, kind, name)["spec"]["template"]["spec"]
    return spec


def containers(spec: Object) -> dict[str, Any]:
    """All containers of a pod by name, those that run first included."""
    return {one["name"]: one for one in [*spec.get("initContainers", []), *spec["containers"]]}


def configuration(objects: Sequence[Object]) -> str:
    """The text of the agent's configuration."""
    return str(the(objects, "ConfigMap")["data"]["nodeagent.yaml"])
