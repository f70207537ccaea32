"""docs/security.md names tests that exist, and the privileges that the containers have."""

from pathlib import Path

from tests.daemonset.kustomize import render
from tests.daemonset.manifests import containers, pod

_ROOT = Path(__file__).parents[2]
_TEXT = (_ROOT / "docs/security.md").read_text("utf-8")


def test_every_capability_and_host_path_has_its_reason() -> None:
    spec = pod(render(_ROOT / "daemonset/base"))
    table = _TEXT.partition("## Privileges, and why")[2].partition("\n## ")[0]
    for container in containers(spec).values():
        for capability in container["securityContext"]["capabilities"].get("add", []):
            assert f"`{capability}`" in table
    for volume in spec["volumes"]:
        if "hostPath" in volume:
            assert f"`{volume['hostPath']['path']}`" in table
