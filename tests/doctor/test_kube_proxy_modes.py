"""In iptables mode, too, kube-proxy and the short circuit are read from the kernel."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doctor.states import stage
from tests.testbed.addresses import Stack
from tests.testbed.kube_proxy import KubeProxyKind
from tests.testbed.world import World


@pytest.fixture(params=[("iptables-nft", 6), ("iptables-legacy", "dual")], ids=str)
def world(as_root: None, request: pytest.FixtureRequest) -> Iterator[World]:
    """One of each shape of its rules."""
    chosen: tuple[KubeProxyKind, Stack] = request.param
    with World(*chosen) as standing:
        yield standing


def test_the_mode_and_the_short_circuit(world: World, tmp_path: Path) -> None:
    scene = stage(world, tmp_path)
    broken = scene.agent.run("doctor")
    assert broken.exit_code == 2, broken
    assert "kube-proxy, mode iptables" in broken.stdout
    assert f"- chain KUBE-SERVICES of {world.kind}\n" in broken.stdout
    for address in world.service.load_balancer_ips:
        assert f"the kernel's Service rules contain {address}\n" in broken.stdout
    assert "[ShortCircuitedAndCut]" in broken.stdout
    with scene.remedied():
        remedied = scene.agent.run("doctor")
        assert remedied.exit_code == 0, remedied
        assert "[RemediedByDnat]" in remedied.stdout
        assert "[DataPlaneKnown]" in remedied.stdout
