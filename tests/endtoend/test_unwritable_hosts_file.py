"""A hosts file that must not be written: nodeagent says why, and DNAT serves all the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.endtoend.asking import assert_served, by_address
from tests.endtoend.matrix import in_two

if TYPE_CHECKING:
    from tests.testbed.agent import Agent
    from tests.testbed.world import World

pytestmark = in_two


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("mv /etc/hosts /etc/hosts.real; ln -s hosts.real /etc/hosts", "symbolic link"),
        ("chattr +i /etc/hosts", r"Operation not permitted \(EPERM\).*chattr -i"),
        ("rm /etc/hosts; mkdir /etc/hosts", "directory"),
    ],
    ids=["a symbolic link", "immutable", "a directory"],
)
def test_one_that_must_not_be_written_leaves_dnat_serving(
    world: World, agent: Agent, hosts_file: bytes, damage: str, words: str
) -> None:
    damaged = agent.host.run(["sh", "-ec", damage], check=False)
    if "chattr" in damage and damaged.returncode != 0:
        pytest.skip(f"the file system of {world.tmp} has no immutable files: {damaged.stderr}")
    assert damaged.returncode == 0, damaged
    try:
        answer = agent.apply()
        assert answer.exit_code == 1, answer
        assert "Hosts file failed" in answer.text
        assert re.search(words, answer.text), answer
        for host in (world.node1, world.pod1):
            assert_served(world, host, *by_address(world))
        assert agent.status().exit_code != 0
        assert _read_whatever_stands(agent) in (hosts_file, None)
    finally:
        agent.host.run(["sh", "-c", "chattr -f -i /etc/hosts; rm -rf /etc/hosts /etc/hosts.real"])


def _read_whatever_stands(agent: Agent) -> bytes | None:
    """Read the hosts file through any symbolic link; None where it is no file."""
    done = agent.host.run(["cat", "/etc/hosts"], check=False)
    return done.stdout.encode() if done.returncode == 0 else None
