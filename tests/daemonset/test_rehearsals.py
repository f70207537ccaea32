"""What an administrator does to the DaemonSet, rehearsed on a node: upgrade, uninstallation, reboot."""

import time
from contextlib import ExitStack

import pytest

from tests.daemon import managed_state
from tests.daemon.connections import SlowDownload, new_connections
from tests.daemon.managed_state import names, read_managed_state
from tests.daemonset.deployment import OPTIONS, Deploy, Deployment
from tests.daemonset.pods import Pod
from tests.testbed.addresses import SITE
from tests.testbed.namespaces import Host
from tests.testbed.node_state import living_processes, read_state
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

_PER_SECOND = 200
"""New connections a second from each of two hosts."""
_CONNECTIONS_OF_A_SOAK = 100_000
_DOWNLOADS = 5
"""From each of them."""


@pytest.mark.long
def test_rollouts_lose_no_connection_and_no_download(
    world: World, deployment: Deployment, soak: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the agent and of the relay in turn, without a setting of the node's: docs/install.md.

    A connection that is open outlives any number of the agent's. Downloads last over a rollout of the relay:
    the old one takes no more connections, but stays for them.
    """
    users = (world.node1, world.pod1)
    image = world.push_image(16)
    # The relay's own connections leave so many ports in TIME_WAIT for a minute.
    world.node1.run(["sysctl", "--quiet", "--write", "net.ipv4.ip_local_port_range=10240 65535"])
    pod = deployment.ready_pod()
    rollouts = 0
    with ExitStack() as stack:
        loads = [stack.enter_context(new_connections(user, _PER_SECOND)) for user in users]
        began = time.monotonic()
        while rollouts == 0 or (soak and sum(load.answered for load in loads) < _CONNECTIONS_OF_A_SOAK):
            downloads = [SlowDownload(user, image) for user in users for _ in range(_DOWNLOADS)]
            before = _standing(world.node1)
            for _ in range(3):
                pod.terminate()
                assert pod.container.wait(seconds=20) == 0
                pod.remove()
                pod = deployment.ready_pod()
                for download in downloads:
                    download.check()
            assert '"message": "Applied a change"' not in pod.container.log()
            assert _standing(world.node1) == before
            old, new = deployment.relays.pop(), deployment.relay_pod()
            new.await_ready()
            old.terminate()
            for load in loads:
                load.await_more(2 * _PER_SECOND)
            for download in downloads:
                download.check()
            assert old.container.running
            for download in downloads:
                download.finish()
            # That was within the grace period; nothing was killed.
            assert old.container.wait(seconds=60) == 0
            old.remove()
            rollouts += 1
        for load in loads:
            load.await_more(_PER_SECOND)
        seconds = time.monotonic() - began
    world.node1.run(["sysctl", "--quiet", "--write", "net.ipv4.ip_local_port_range=32768 60999"])
    total = sum(load.answered for load in loads)
    late = [line for load in loads for line in load.late]
    assert not (soak and late), f"of {total} took more than 250 ms: {late}"
    with capsys.disabled():
        print(
            f"\n{3 * rollouts} rollouts of the agent, {rollouts} of the relay: {total} new connections "
            f"({total / seconds:.0f}/s) and {_DOWNLOADS * 2} downloads, none failed; the slowest took "
            f"{max(load.longest_seconds for load in loads):.3f} s; "
            f"more than 250 ms took: {', '.join(late) or 'none'}"
        )
    assert total / seconds >= _PER_SECOND
    _check_served(world)
    _uninstall(deployment, pod)


def test_a_new_relay_without_an_agent_is_not_ready(world: World, deployment: Deployment) -> None:
    """And takes nothing away: a rollout of relays waits for each node's agent."""
    pod = deployment.ready_pod()
    pod.terminate()
    assert pod.container.wait(seconds=20) == 0
    with new_connections(world.node1), new_connections(world.node1, target=SITE) as load:
        new = deployment.relay_pod()
        new.container.await_probe("livenessProbe")
        load.await_more(20)
        assert new.container.probe("startupProbe").exit_code != 0
        pod.restart()
        new.await_ready()
        old = deployment.relays.pop(0)
        old.terminate()
        assert old.container.wait(seconds=20) == 0
        load.await_more(20)
    _check_served(world)


def test_kubectl_delete_takes_rights_first_and_leaves_nothing(world: World, deployment: Deployment) -> None:
    """Of `kubectl delete -k` or of a namespace: refusals for 20 seconds."""
    pod = deployment.ready_pod()
    deployment.api.access.allow_only([], "system:serviceaccount:nodeagent:nodeagent")
    for each in (pod, *deployment.relays):
        each.terminate()
    assert pod.container.wait(seconds=50) == 0
    _assert_nothing_leads_to_a_relay(world.node1)


def test_reboot(world: World, deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    """Until the agent runs, the hosts file has an address that does not exist; then all is well by itself."""
    node = world.node1
    before = _shut_down_and_boot(deployment, deployment.ready_pod())
    # Of what a gateway can do with such packets, the worst.
    unrouted = ["blackhole", "169.254.0.0/16"]
    world.lb.run(["ip", "route", "add", *unrouted])
    try:
        began = time.monotonic()
        request = node.curl(f"https://{SITE}/", timeout=3)
        seconds = time.monotonic() - began
        assert not request.ok
        deployment.relay_pod()
        began = time.monotonic()
        pod = deployment.pod()
        pod.container.process.await_that(
            lambda: node.curl(f"https://{SITE}/", timeout=5).ok,
            "serving the name again",
            seconds=30,
            every=0.1,
        )
        served = time.monotonic() - began
        with capsys.disabled():
            print(
                f"\nreboot: before the agent runs, {request.stderr!r} after {seconds:.1f} s; served "
                f"{served:.1f} s after the pod's start"
            )
        pod.await_ready()
        assert read_managed_state(node) == before
    finally:
        world.lb.run(["ip", "route", "del", *unrouted])


def test_hostnames_are_verified_and_an_uninstall_leaves_nothing(world: World, deploy: Deploy) -> None:
    """Also behind systemd-resolved, whose link and whose stub mean nothing to a container."""
    node = world.node1
    before = read_state(node)
    resolv_conf = node.etc / "resolv.conf"
    as_found = resolv_conf.read_text(encoding="ascii")
    node.run(["mkdir", "-p", "/run/systemd/resolve"])
    node.run(["tee", "/run/systemd/resolve/resolv.conf"], stdin=as_found)
    node.run(["tee", "/run/systemd/resolve/stub-resolv.conf"], stdin="nameserver 127.0.0.53\n")
    resolv_conf.unlink()
    resolv_conf.symlink_to("../run/systemd/resolve/stub-resolv.conf")
    options = {**OPTIONS, "hosts": {"verify": "dns"}}
    try:
        deployment = deploy(options=options)
        pod = deployment.ready_pod()
        pod.container.await_line("verified: DNS answers 203.0.113.10")
        wait_until(lambda: SITE in names(node), "the name being written")
        assert read_state(node).differences(before) != []
        _uninstall(deployment, pod)
        node.run(["rm", "-r", "/run/systemd"])
        node.run(["rmdir", "/run/nodeagent"])
        assert read_state(node).differences(before) == []
    finally:
        resolv_conf.unlink()
        resolv_conf.write_text(as_found, encoding="ascii")


def _standing(node: Host) -> tuple[object, ...]:
    """What no restart of an agent changes: not an inode, a rule or a process."""
    processes = [line.split()[0] for line in living_processes(node, "haproxy")]
    return processes, read_managed_state(node), managed_state.table(node), managed_state.hosts_inode(node)


def _shut_down_and_boot(deployment: Deployment, pod: Pod) -> managed_state.ManagedState:
    """Cut the power of a node that a pod serves; returns the state before. The hosts file stays."""
    node = pod.node
    before = read_managed_state(node)
    for each in (pod, deployment.relays.pop()):
        each.remove()
    for address in before.addresses:
        node.run(["ip", "address", "del", f"{address}/32", "dev", "lo"])
    node.run(["nft", "delete", "table", "inet", "nodeagent"])
    node.run(["rm", "-r", "/run/nodeagent"])
    assert names(node) == before.names
    return before


def _assert_nothing_leads_to_a_relay(node: Host) -> None:
    assert (names(node), managed_state.relay_addresses(node)) == ({}, frozenset())
    assert "nodeagent" not in node.run(["nft", "list", "tables"]).stdout


def _check_served(world: World) -> None:
    for user in (world.node1, world.pod1):
        answer = user.curl(f"https://{SITE}/")
        assert answer.ok, answer


def _uninstall(deployment: Deployment, pod: Pod) -> None:
    node = deployment.node
    deployment.delete()
    pod.terminate()
    assert pod.container.wait() == 0, pod.container.log()
    for relay in deployment.relays:
        relay.terminate()
        assert relay.container.wait() == 0, relay.container.log()
        relay.remove()
    pod.remove()
    assert "Could not clean up a component" not in pod.container.log()
    _assert_nothing_leads_to_a_relay(node)
    assert living_processes(node, "haproxy") == []
    # The next boot removes what the relay pods left.
    node.run(["rm", "-r", "/run/nodeagent/relay"])
    assert node.run(["ls", "-A", "/run/nodeagent"]).stdout == ""
