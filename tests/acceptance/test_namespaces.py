"""The acceptance steps pass in the testbed on two nodes; and they fail if they must."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.namespaces_place import NamespacesPlace
from tests.acceptance.steps import (
    STEPS,
    Scene,
    all_are_cut,
    all_are_served,
    nothing_stands,
    pulls_fail,
    pulls_succeed,
    self_check_succeeds,
    uninstall,
    upgrade,
)
from tests.daemonset.deployment import Deployment
from tests.testbed.demo_screen import Screen
from tests.testbed.errors import NotObservedError
from tests.testbed.fixtures import needs_root
from tests.testbed.telling import play
from tests.testbed.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.daemonset.image_root import ImageRoot

pytestmark = [
    needs_root,
    pytest.mark.timeout(600),
]  # the first test builds the image: a minute, if the machine is idle


@pytest.fixture(scope="module")
def world(as_root: None) -> Iterator[World]:
    """A world for the steps alone."""
    with World() as standing:
        yield standing


@pytest.fixture
def place(world: World, image: ImageRoot, tmp_path: Path) -> Iterator[NamespacesPlace]:
    """The world as a place, without nodeagent."""
    with Deployment(world, image, tmp_path / "deployment") as deployment:
        yield NamespacesPlace(world, deployment)


@pytest.mark.matrix  # test_played_cluster.py plays the same steps, with the same pods, over ssh
def test_every_step_is_observed_on_two_nodes(
    place: NamespacesPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen(len(STEPS))
    play(STEPS, Scene(place, screen), screen)
    shown = capsys.readouterr().out
    for step in STEPS:
        assert step.title in shown
    for node in ("node1", "node2"):
        assert f"ok {node} pulled registry.example.test/" in shown
        assert f"ok the self check succeeds from a pod of {node}" in shown


class ClumsyPlace(NamespacesPlace):
    """Whose upgrade ends the old pods before it starts the new, and whose uninstallation leaves something."""

    def upgrade(self) -> None:
        """Kill the pods, and start others."""
        for pod in self.daemonset.pods:
            pod.remove()
        self.install()

    def uninstall(self) -> None:
        """Kill the pods: what they made stays."""
        for pod in self.daemonset.pods:
            pod.remove()


def test_each_step_fails_where_it_must(world: World, image: ImageRoot, tmp_path: Path) -> None:
    """Without nodeagent nothing counts as served, with it nothing as cut; a gap and remains are noticed."""
    with Deployment(world, image, tmp_path / "deployment") as deployment:
        place = ClumsyPlace(world, deployment)
        scene = Scene(place, Screen(1), pause=0.25)
        for step in (all_are_served, pulls_succeed, self_check_succeeds):
            with pytest.raises(NotObservedError):
                step(scene)
        nothing_stands(scene)
        place.install()
        for step in (nothing_stands, all_are_cut, pulls_fail):
            with pytest.raises(NotObservedError):
                step(scene)
        with pytest.raises(NotObservedError, match="every request of node1 answered"):
            upgrade(scene)
        with pytest.raises(NotObservedError, match="node1 as it was"):
            uninstall(scene)
