"""The hosts file belongs to the user: nodeagent keeps a block in it. No backend has a part in this."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.endtoend.asking import NAMED, assert_served
from tests.endtoend.matrix import in_one
from tests.testbed import addresses

if TYPE_CHECKING:
    from tests.testbed.agent import Agent
    from tests.testbed.world import World

pytestmark = in_one


@pytest.mark.parametrize("ending", [b"\n", b"", b" # caf\xe9\r\n", b"\n\n# the end"])
def test_a_users_edits_stay_byte_for_byte(agent: Agent, hosts_file: bytes, ending: bytes) -> None:
    above, below = b"10.9.9.9\tabove.example.net\n", b"10.9.9.8   below.example.net"
    assert agent.apply().exit_code == 0
    agent.host.write_hosts(above + agent.host.read_hosts() + below + ending)
    status = agent.status()
    assert status.exit_code == 2, status
    assert agent.apply().exit_code == 0
    standing = agent.host.read_hosts()
    assert standing.startswith(above + hosts_file + below + ending)
    assert addresses.SITE.encode() in standing
    answer = agent.apply()
    assert "nothing to do" in answer.stdout
    assert agent.cleanup().exit_code == 0
    assert agent.host.read_hosts() == above + hosts_file + below + ending


@pytest.mark.usefixtures("hosts_file")
def test_a_name_that_the_user_set_is_left_to_him(agent: Agent) -> None:
    agent.host.write_hosts(agent.host.read_hosts() + f"10.9.9.9 {addresses.SITE}\n".encode())
    answer = agent.apply()
    assert answer.exit_code == 0, answer
    assert f"\t{addresses.SITE}".encode() not in agent.host.read_hosts()
    status = agent.status()
    assert status.exit_code == 0
    line = len(agent.host.read_hosts().partition(b"# BEGIN nodeagent")[0].splitlines())
    assert f"{addresses.SITE} (Ingress default/web): left to line {line} of /etc/hosts" in status.stdout


@pytest.mark.usefixtures("hosts_file")
def test_mode_and_owner_stay(agent: Agent) -> None:
    agent.host.run(["chown", "7:8", "/etc/hosts"])
    agent.host.run(["chmod", "0604", "/etc/hosts"])
    for answer in (agent.apply(), agent.cleanup()):
        assert answer.exit_code == 0, answer
        assert agent.host.run(["stat", "--format=%a %u:%g", "/etc/hosts"]).stdout == "604 7:8\n"


@pytest.mark.usefixtures("hosts_file")
def test_one_mounted_as_a_single_file_is_written_in_place(world: World, agent: Agent) -> None:
    mount = ["sh", "-ec", "cp /etc/hosts /run/mounted; mount --bind /run/mounted /etc/hosts"]
    agent.host.run(mount)
    try:
        before = agent.host.run(["cat", "/etc/hosts"]).stdout
        answer = agent.apply()
        assert answer.exit_code == 0, answer
        assert "in place" in answer.stdout
        assert_served(world, world.node1, NAMED[1])
        assert agent.cleanup().exit_code == 0
        assert agent.host.run(["cat", "/etc/hosts"]).stdout == before
    finally:
        agent.host.run(["sh", "-ec", "umount /etc/hosts; rm /run/mounted"])


def test_hairpin_proxys_lines_go_only_when_adopted(world: World, agent: Agent, hosts_file: bytes) -> None:
    old = f"10.96.0.77 {addresses.SITE} {addresses.REGISTRY} # Added by hairpin-proxy\n".encode()
    agent.host.write_hosts(hosts_file + old)
    answer = agent.apply()
    assert answer.exit_code == 0, answer
    assert agent.host.read_hosts() == hosts_file + old
    plan = agent.plan()
    line = len(hosts_file.splitlines()) + 1
    assert f"/etc/hosts:{line}: hairpin-proxy's old line for" in plan.stdout
    assert "--adopt removes it" in plan.stdout
    adopting = agent.plan("--adopt")
    assert adopting.exit_code == 2, adopting
    assert f"-{old.decode()}" in re.sub(r"^ {2}", "", adopting.stdout, flags=re.MULTILINE)
    answer = agent.apply("--adopt")
    assert answer.exit_code == 0, answer
    assert old not in agent.host.read_hosts()
    assert_served(world, world.node1, f"https://{addresses.SITE}/", f"http://{addresses.REGISTRY}/")
    assert agent.plan().exit_code == 0
    assert agent.cleanup().exit_code == 0
    assert agent.host.read_hosts() == hosts_file
