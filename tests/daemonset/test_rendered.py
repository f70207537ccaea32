"""The rendered file is the base; and the renderer does as kustomize does."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.daemonset.kustomize import (
    DAEMONSET,
    RENDERED,
    Object,
    documents,
    render,
    text,
)
from tests.daemonset.manifests import COMPONENTS, KUSTOMIZATIONS, with_components

_needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="no kubectl with its kustomize here to compare with"
)


def _by_identity(objects: list[Object]) -> dict[str, Object]:
    return {
        f"{one['kind']} {one['metadata'].get('namespace', '-')}/{one['metadata']['name']}": one
        for one in objects
    }


def test_the_rendered_file_is_the_base() -> None:
    assert RENDERED.read_text("utf-8") == text(DAEMONSET), "run `make deploy`"
    assert documents(RENDERED.read_text("utf-8")) == render(DAEMONSET / "base")


@_needs_kubectl
@pytest.mark.parametrize("name", [*KUSTOMIZATIONS, *COMPONENTS])
def test_kubectl_renders_the_same(name: str, tmp_path: Path) -> None:
    directory = with_components(tmp_path, "base", name) if name in COMPONENTS else DAEMONSET / name
    told = subprocess.run(
        ["kubectl", "kustomize", "--load-restrictor=LoadRestrictionsNone", str(directory)],
        capture_output=True,
        text=True,
        check=True,
        # Its few megabytes of garbage are not worth a quarter of its time.
        env=os.environ | {"GOGC": "off"},
    )
    assert _by_identity(documents(told.stdout)) == _by_identity(render(directory))
