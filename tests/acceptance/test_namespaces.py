"""The acceptance steps pass in the little world on two nodes; and they fail where they must."""

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
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.daemonset.image_root import ImageRoot

pytestmark = [
    needs_root,
    pytest.mark.timeout(600),
]  # the first test builds the image: a minute, if the machine is idle


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A world for the steps alone."""
    with World() as standing:
        yield standing


@pytest.fixture
def place(world: World, image: ImageRoot, tmp_path: Path) -> Iterator[NamespacesPlace]:
    """The world as a place, without nodeagent."""
    with Deployment(world, image, tmp_path / "deployment") as deployment:
        yield NamespacesPlace(world, deployment)


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


@pytest.mark.parametrize("step", [all_are_served, pulls_succeed, self_check_succeeds])
def test_without_nodeagent_nothing_counts_as_served(
    place: NamespacesPlace, step: Callable[[Scene], None]
) -> None:
    with pytest.raises(NotObservedError):
        step(Scene(place, Screen(1)))


def test_with_nodeagent_nothing_counts_as_cut(place: NamespacesPlace) -> None:
    place.install()
    scene = Scene(place, Screen(1))
    for step in (nothing_stands, all_are_cut, pulls_fail):
        with pytest.raises(NotObservedError):
            step(scene)


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


def test_a_gap_at_the_upgrade_and_what_is_left_behind_are_noticed(
    world: World, image: ImageRoot, tmp_path: Path
) -> None:
    with Deployment(world, image, tmp_path / "deployment") as deployment:
        place = ClumsyPlace(world, deployment)
        scene = Scene(place, Screen(1))
        nothing_stands(scene)
        place.install()
        with pytest.raises(NotObservedError, match="every request of node1 answered"):
            upgrade(scene)
        with pytest.raises(NotObservedError, match="node1 as it was"):
            uninstall(scene)
