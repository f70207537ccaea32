"""Damage by another program is shown by status and plan, and repaired by apply."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest

from tests.endtoend.asking import NAMED, assert_served, by_address
from tests.endtoend.matrix import each_over, in_a_few, in_two
from tests.testbed.addresses import bracketed
from tests.testbed.node_state import living_processes
from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.testbed.agent import Agent
    from tests.testbed.namespaces import Host
    from tests.testbed.world import World


_RELAY = "Relay (HAProxy)"
_HOSTS = "Hosts file"


def _kill_haproxy(host: Host) -> None:
    host.run(["pkill", "-KILL", "-x", "haproxy"])
    wait_until(lambda: living_processes(host, "haproxy") == [], "HAProxy having died")


def _kill_worker(host: Host) -> None:
    # The worker is the younger of the two; its master then ends too.
    host.run(["pkill", "-KILL", "-n", "-x", "haproxy"])
    wait_until(lambda: living_processes(host, "haproxy") == [], "HAProxy having ended")


def _flush_rules_of_nodeagent(host: Host) -> None:
    for iptables in _legacy_with_our_chains(host):
        host.run([iptables, "-t", "nat", "-F", "NODEAGENT-OUTPUT"])
    if _has_our_table(host):
        host.run(["nft", "flush", "table", "inet", "nodeagent"])


def _delete_redirects(host: Host) -> None:
    """All of nodeagent's in nat: its nft table, or its chains with the jumps to them."""
    for iptables in _legacy_with_our_chains(host):
        saved = host.run([f"{iptables}-save", "-t", "nat"]).stdout
        ours = re.findall(r"^:(NODEAGENT-\S+)", saved, re.MULTILINE)
        jumps = re.findall(r"^-A ((?:OUTPUT|PREROUTING) .*-j NODEAGENT-\S+)", saved, re.MULTILINE)
        lines = [f"-D {jump}" for jump in jumps]
        lines += [f"-F {chain}" for chain in ours] + [f"-X {chain}" for chain in ours]
        host.run([f"{iptables}-restore", "--noflush"], stdin="\n".join(["*nat", *lines, "COMMIT", ""]))
    if _has_our_table(host):
        host.run(["nft", "delete", "table", "inet", "nodeagent"])


def _legacy_with_our_chains(host: Host) -> list[str]:
    return [
        program
        for program in ("iptables-legacy", "ip6tables-legacy")
        if "NODEAGENT-OUTPUT" in host.run([f"{program}-save", "-t", "nat"]).stdout
    ]


def _has_our_table(host: Host) -> bool:
    return "table inet nodeagent" in host.run(["nft", "list", "tables"]).stdout


def _replace_hosts_file(host: Host) -> None:
    """By another file, with the user's lines alone."""
    without = "sed '/^# BEGIN nodeagent/,/^# END nodeagent/d' /etc/hosts >/etc/hosts.new"
    host.run(["sh", "-ec", f"{without}; mv /etc/hosts.new /etc/hosts"])


def _edit_block(host: Host) -> None:
    host.run(["sed", "-i", "/site.example.test/d", "/etc/hosts"])


def _empty_run_directory(host: Host) -> None:
    host.run(["sh", "-ec", "rm -rf /run/nodeagent"])


def _delete_relay_address(host: Host) -> None:
    host.run(
        ["sh", "-ec", "ip -4 address flush to 169.254.66.0/24; ip -6 address flush to fd68:6169:7270::/112"]
    )


@pytest.fixture(scope="module")
def relays(world: World, kept_agent: Agent) -> list[str]:
    """The addresses of the relay, as they are written in URLs."""
    (load_balancer,) = kept_agent.plan("-o", "json").document["loadBalancers"]
    found = [bracketed(ip_address(text)) for text in load_balancer["relayAddresses"]]
    assert len(found) == len(world.families)
    return found


@each_over(in_a_few)
@pytest.mark.parametrize(
    ("damage", "heals"),
    [
        pytest.param(_flush_rules_of_nodeagent, "! re", id="rules flushed"),
        pytest.param(_delete_redirects, ":443 -> ", id="redirects deleted"),
    ],
)
def test_damage_to_the_rules_is_seen_and_healed(
    world: World, kept_agent: Agent, relays: list[str], damage: Callable[[Host], None], heals: str
) -> None:
    _assert_healed(world, kept_agent, damage, "DNAT", heals, relays=relays, silent=False)


# A file, an address and HAProxy are the same next to each shape of kube-proxy's rules.
@each_over(in_two)
@pytest.mark.parametrize(
    ("damage", "component", "heals"),
    [
        pytest.param(_kill_haproxy, _RELAY, "start HAProxy", id="HAProxy killed"),
        pytest.param(_kill_worker, _RELAY, "start HAProxy", id="its worker killed"),
        pytest.param(_empty_run_directory, _RELAY, "start HAProxy", id="run directory gone"),
        pytest.param(_replace_hosts_file, _HOSTS, "2 names added", id="hosts file replaced"),
        pytest.param(_edit_block, _HOSTS, "1 name added", id="line deleted from the block"),
        pytest.param(_delete_relay_address, "Relay addresses", "+ ", id="address deleted"),
    ],
)
def test_damage_is_seen_and_healed(  # noqa: PLR0913, PLR0917 - three of them are the case
    world: World,
    kept_agent: Agent,
    relays: list[str],
    damage: Callable[[Host], None],
    component: str,
    heals: str,
) -> None:
    silent = component != _HOSTS
    _assert_healed(world, kept_agent, damage, component, heals, relays=relays, silent=silent)


def _assert_healed(  # noqa: PLR0913 - three of them are the case
    world: World,
    agent: Agent,
    damage: Callable[[Host], None],
    component: str,
    heals: str,
    *,
    relays: list[str],
    silent: bool,
) -> None:
    assert agent.apply().exit_code == 0
    damage(world.node1)
    status = agent.status()
    assert status.exit_code == 2, status
    assert f"Drift\n  {component}\n" in status.stdout
    assert [f"{relay}:443 does not answer" in status.stdout for relay in relays] == [silent] * len(relays)
    plan = agent.plan()
    assert plan.exit_code == 2, plan
    assert f"node node1: to change: {component};" in plan.stdout
    healed = agent.apply()
    assert healed.exit_code == 0, healed
    assert heals in healed.stdout
    assert agent.status().exit_code == 0
    assert_served(world, world.node1, NAMED[1], *by_address(world))
