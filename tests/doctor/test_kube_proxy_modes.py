"""In iptables mode, too, kube-proxy and the short circuit are read from the kernel."""

from pathlib import Path

import pytest

from tests.doctor.states import stage
from tests.testbed.fixtures import world
from tests.testbed.world import World

__all__ = ["world"]


@pytest.mark.parametrize(
    "world", [("iptables-nft", 6), ("iptables-legacy", "dual")], indirect=True, scope="module", ids=str
)
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
