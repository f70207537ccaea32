import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from unittest.mock import Mock

import pytest

from nodeagent.components.relay import activation, haproxy_config, haproxy_sockets
from nodeagent.components.relay.haproxy_sockets import Silence, Unreachable, ask
from nodeagent.config.options import RelayOptions
from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired, Listener
from tests.components.converging import add, remove
from tests.components.relay.backend import (
    SERVED,
    Download,
    backend,
    connect,
    echo,
    echoes,
    ended,
    load,
    start_site,
    who,
)
from tests.components.relay.node import CONFIG, NODE, POD, RELAY, RELAY_2, A, B, KeptRelay, isolated, listener
from tests.testbed.waiting import wait_until


@contextmanager
def _serving(*listeners: Listener) -> Iterator[KeptRelay]:
    relays = KeptRelay()
    with backend(listener().server):
        relays.serve(listeners)
        yield relays


@isolated
def test_a_master_that_executes_itself_does_not_count_as_ended() -> None:
    with _serving(A) as relay:
        for wanted in ((A,), (A, B)) * 7:
            desired = Desired(listeners=wanted)
            add(relay, desired)
            # The old worker, which does not have all of them, may still answer.
            assert relay.ready_of(wanted) == {each.bind for each in wanted}
            remove(relay, desired)
            # As other commands and the watch do, which know nothing of the reload.
            KeptRelay.processes()


@isolated
def test_reloads_under_load_fail_no_connection_and_cut_no_download() -> None:
    site = listener(RELAY_2, server=POD)
    start_site(site.server)
    with _serving(A, site) as relays:
        downloads = [Download(A.bind, 48 << 20) for _ in range(5)]
        with load(site.bind, 1000) as (answers, await_more):
            for port in range(1001, 1007):
                for download in downloads:
                    assert download.read(2 << 20) == 2 << 20
                relays.serve([A, site, *(listener(port=each) for each in range(1001, port + 1))])
                await_more(20)
        assert set(answers) == {SERVED}
        assert all(download.whole() for download in downloads)


@isolated
def test_where_the_workers_answer_is_unusable_the_masters_word_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unusable = Unreachable("stats.sock", Silence.CUT)
    monkeypatch.setattr(activation, "_ACTIVE_SECONDS", 0.5)
    with _serving(A) as relays:
        earlier = haproxy_sockets.read_worker(CONFIG.with_name("relay.sock"))
        monkeypatch.setattr(haproxy_sockets, "read_worker", lambda _: earlier)
        with pytest.raises(ApplyError, match="was asked to reload but does not run"):
            relays.serve([A, B])
        monkeypatch.setattr(haproxy_sockets, "read_worker", lambda _: unusable)
        relays.serve([A, B])
        assert relays.ready_of([A, B]) == {A.bind, B.bind}
        for port, processes in ((6000, relays.processes()), (6001, unusable)):
            monkeypatch.setattr(haproxy_sockets, "read_processes", Mock(return_value=processes))
            with pytest.raises(ApplyError, match=r"reload but does not run|sock does not answer within"):
                add(relays, Desired(listeners=(A, B, listener(port=port))))


@isolated
def test_a_connection_through_a_removed_listener_goes_on() -> None:
    with _serving(A, B) as relays, echo(B.bind) as connection:
        relays.serve([A])
        with pytest.raises(ConnectionRefusedError):
            connect(B.bind)
        assert echoes(connection)
        assert relays.ready_of([A, B]) == {A.bind}


@isolated
def test_a_configuration_that_haproxy_refuses_is_not_left_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with _serving(A) as relays:
        before = CONFIG.read_bytes()
        good = haproxy_config.render

        def render_badly(*args: object) -> str:
            return good(*args).replace("mode tcp", "mode carrier-pigeon")  # type: ignore[arg-type]

        monkeypatch.setattr(haproxy_config, "render", render_badly)
        monkeypatch.setattr(activation, "_ACTIVE_SECONDS", 3600.0)  # it is not waited for
        with pytest.raises(ApplyError, match="carrier-pigeon"):
            relays.serve([A, B])
        assert CONFIG.read_bytes() == before
        assert who(A.bind) == f"v1 {RELAY}"


@isolated
def test_a_crash_between_writing_and_reloading_heals(monkeypatch: pytest.MonkeyPatch) -> None:
    with _serving(A) as relays:
        with monkeypatch.context() as patched:
            patched.setattr(haproxy_sockets, "reload_haproxy", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                relays.serve([A, B])
        assert relays.read().listeners == (A, B)
        assert not relays.state().current
        expected = "reload HAProxy: the process does not run the file's configuration"
        assert relays.difference([A, B]).text == expected
        relays.serve([A, B])
        assert relays.state().current
        assert who(B.bind) == f"v1 {RELAY_2}"


@isolated
def test_a_manually_changed_file_is_written_again() -> None:
    with _serving(A) as relays:
        CONFIG.write_text(CONFIG.read_text().replace("timeout client 3600s", "timeout client 1s"))
        assert relays.difference([A]).text == "reload HAProxy: the file is not as nodeagent writes it"
        relays.serve([A])
        assert "timeout client 3600s" in CONFIG.read_text()
        CONFIG.write_bytes(b"listen \xff what\n")
        assert "will be written again" in relays.read().notes[0]
        relays.serve([A])
        assert relays.read().listeners == (A,)
        assert not relays.difference([A])


@isolated
def test_reloads_leave_no_more_than_so_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a connection: a tenant can change a load balancer, and open one, as often as they like."""
    monkeypatch.setattr(haproxy_config, "_OLD_PROCESSES_MIB", 0)
    with _serving(A) as relays, ExitStack() as stack:
        connections = []
        for number in range(14):
            connections.append(stack.enter_context(echo(A.bind)))
            relays.serve([A, B] if number % 2 else [A])
        relays.serve([A, listener(port=1001)])
        assert ended(connections[0])
        assert echoes(connections[-1])
        assert len(KeptRelay.processes().old_workers) <= 11


_MOST = 160


@isolated
def test_stalled_transfers_and_reloads_together_hold_no_more_than_twice_the_limit() -> None:
    """HAProxy's own limits count in each process alone, and each reload leaves one."""
    options = RelayOptions(launch=True, max_connections=_MOST)
    served = listener(node=NODE)
    relays = KeptRelay(options)
    with backend(served.server), ExitStack() as stack:
        relays.serve([served])
        single = stack.enter_context(echo(served.bind, POD))
        for number in range(6):
            for place in range(140):
                with suppress(ConnectionError):  # one is rejected, as there is no place left
                    stalled = stack.enter_context(connect(served.bind, f"127.0.1.{1 + place // 20}"))
                    stalled.sendall(b"send 1000000\n")
            assert who(served.bind) == f"v1 {NODE}"
            assert _held() <= 2 * _MOST
            relays.serve([served, B] if number % 2 else [served, listener(port=1001)])
            assert who(served.bind) == f"v1 {NODE}"
        # The one that has a single connection lost it to none of them.
        assert echoes(single)


def _held() -> int:
    found = KeptRelay.processes()
    total = 0
    for pid in (*found.workers, *found.old_workers):
        told = ask(CONFIG.with_name("master.sock"), f"@!{pid} show sess", 10)
        assert isinstance(told, str)
        total += told.count(" proto=tcpv4 ")
    return total


_STALLED = 20


@isolated
def test_a_stalled_transfer_holds_little_of_the_kernels_memory() -> None:
    """Which counts as the container's. Left to itself, the kernel grows the buffers of what was fast."""
    with _serving(A), ExitStack() as stack:
        for _ in range(_STALLED):
            stalled = stack.enter_context(connect(A.bind))
            stalled.sendall(b"send 100000000\n")
            for _ in range(40):
                assert stalled.recv(1 << 18, socket.MSG_WAITALL)
        wait_until(lambda: _of_sockets() > _STALLED * 100_000, "full buffers", seconds=20)
        assert _of_sockets() < _STALLED * 600_000


def _of_sockets() -> int:
    """Bytes in the buffers of HAProxy's sockets: those of its clients, and those to the server."""
    mine = f"( src {RELAY} and sport = :443 ) or ( dst {A.server.address} and dport = :443 )".split()
    told = subprocess.run(["ss", "-tmnH", *mine], capture_output=True, text=True, check=True).stdout
    buffers = re.findall(r"skmem:\(r(\d+),rb\d+,t\d+,tb\d+,f\d+,w(\d+)", told)
    return sum(int(received) + int(sent) for received, sent in buffers)


PEERS = 250


def is_open(connection: socket.socket) -> bool:
    """Whether the other end has neither closed nor reset it."""
    connection.settimeout(0)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def bind_to_the_relays_address(closing: ExitStack) -> None:
    """As an ordinary user: more connections than may stay, each to a peer of its own."""
    server = closing.enter_context(socket.create_server(("0.0.0.0", 7777), backlog=PEERS))
    os.seteuid(65534)
    try:
        for number in range(1, PEERS):
            client = closing.enter_context(socket.socket())
            client.bind((RELAY, 0))
            client.connect((f"127.0.2.{number}", server.getsockname()[1]))
    finally:
        os.seteuid(0)


@isolated
def test_no_socket_of_another_user_makes_clients_of_the_relay_lose_their_connections() -> None:
    relays = KeptRelay(RelayOptions(launch=True, max_connections=144))
    with backend(A.server), ExitStack() as closing:
        relays.serve([A])
        own = closing.enter_context(connect(A.bind, NODE))
        of_pods = []
        for wanted in ([A, B], [A]):
            peers = [f"127.0.1.{1 + number // 4}" for number in range(80)]
            of_pods += [closing.enter_context(connect(A.bind, peer)) for peer in peers]
            if wanted == [A]:
                bind_to_the_relays_address(closing)
            relays.serve(wanted)
        assert is_open(own)
        # The pods', of which there were too many, keep what fits.
        wait_until(lambda: 80 <= sum(map(is_open, of_pods)) <= 144, "as many as fit", seconds=20)
