"""The chart as Helm's own engine renders it, as objects."""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from release.schemas import CHART
from tests.daemonset.kustomize import Object, documents

# Helm is written in Go: without this, a third of its time goes into collecting a few megabytes of garbage.
os.environ.setdefault("GOGC", "400")
helm = pytest.importorskip("helm_python", reason="helm-python-sdk has wheels for x86-64 alone")

HOOK = "helm.sh/hook"
_OWN_LABELS = (
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
)
_BY_NAME = {"containers", "initContainers", "volumes", "env"}
IMAGE = {"repository": "nodeagent"}
"""Outside of a release the chart needs one; this is the name in the kustomizations."""


@cache
def chart() -> Any:  # noqa: ANN401 - the SDK's Chart
    return helm.Chart.load(CHART)


def files(values: Mapping[str, Any] | None = None, namespace: str = "nodeagent") -> dict[str, str]:
    """Render the chart, by default with `IMAGE`; each template's text by its name, NOTES.txt among them."""
    given = dict(values or {})
    given["image"] = {**IMAGE, **given.get("image", {})}
    rendered: dict[str, str] = chart().render(given, name="nodeagent", namespace=namespace)
    return {path.rpartition("/")[2]: text for path, text in rendered.items()}


def everything(values: Mapping[str, Any] | None = None, namespace: str = "nodeagent") -> list[Object]:
    """Render the chart; all its objects, the hooks' included."""
    return [
        found
        for name, text in files(values, namespace).items()
        if name.endswith(".yaml")
        for found in documents(text)
    ]


def objects(values: Mapping[str, Any] | None = None, namespace: str = "nodeagent") -> list[Object]:
    """Render the chart; the objects of the release, without those of hooks."""
    return [one for one in everything(values, namespace) if HOOK not in annotations_of(one)]


def annotations_of(found: Object) -> Mapping[str, str]:
    return found["metadata"].get("annotations") or {}


def normal(found: Object) -> Object:
    """Return an object without Helm's labels, and with lists that Kubernetes reads by name in their order."""
    result: Object = _sorted(found)
    for label in _OWN_LABELS:
        result["metadata"]["labels"].pop(label, None)
    return result


def _sorted(value: Any, key: str = "") -> Any:  # noqa: ANN401 - whatever YAML holds
    if isinstance(value, dict):
        return {name: _sorted(one, name) for name, one in value.items()}
    if isinstance(value, list):
        items = [_sorted(one) for one in value]
        if key in _BY_NAME:
            return sorted(items, key=lambda one: one["name"])
        return sorted(items, key=lambda one: one["mountPath"]) if key == "volumeMounts" else items
    return value
