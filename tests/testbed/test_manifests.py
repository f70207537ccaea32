"""The manifests in the folder are those that a world of IPv4 alone writes."""

from pathlib import Path
from typing import Any

import yaml

from tests.testbed.cluster_objects import write_manifests
from tests.testbed.world import MANIFESTS


def test_the_manifests_describe_an_ipv4_world(tmp_path: Path) -> None:
    write_manifests(tmp_path, (4,))
    assert _documents(tmp_path) == _documents(MANIFESTS)


def _documents(directory: Path) -> list[dict[str, Any]]:
    return [
        document
        for path in sorted(directory.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
