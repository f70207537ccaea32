"""The world is a fair proving ground: outside works, inside fails as in a real cluster, a relay heals it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import addresses
from tests.testbed.cluster_objects import write_manifests
from tests.testbed.fixtures import needs_root
from tests.testbed.waiting import wait_until
from tests.testbed.world import MANIFESTS, World

pytestmark = needs_root

URLS = (
    f"http://{addresses.SITE}/",
    f"https://{addresses.SITE}/",
    f"https://{addresses.ANOTHER}:8443/",
)


@pytest.mark.parametrize("url", URLS)
def test_outside_works_and_the_true_address_arrives(world: World, url: str) -> None:
    for family in world.families:
        answer = world.client.curl(url, extra=[f"-{family}"])
        assert answer.ok, answer
        assert answer.body.startswith(f"client={world.address(world.client, family)} ")


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("name", ["node1", "node2", "pod1", "pod2"])
def test_inside_is_rejected_because_the_proxy_header_is_missing(world: World, name: str, url: str) -> None:
    host = next(host for host in world.hosts if host.name == name)
    for family in world.families:
        before = len(world.broken_headers())
        answer = host.curl(url, extra=[f"-{family}"])
        assert answer.cut, answer
        wait_until(
            lambda before=before: len(world.broken_headers()) > before,  # type: ignore[misc] # the loop's
            "nginx logging a broken header",
        )
        answer = host.curl(url, proxy_protocol=True, extra=[f"-{family}"])
        assert answer.ok, answer
        assert answer.body.startswith(f"client={world.address(host, family)} ")


def test_the_manifests_describe_an_ipv4_world(tmp_path: Path) -> None:
    write_manifests(tmp_path, (4,))
    assert _documents(tmp_path) == _documents(MANIFESTS)


def _documents(directory: Path) -> list[dict[str, Any]]:
    return [
        document
        for path in sorted(directory.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
