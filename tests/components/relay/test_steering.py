"""While two HAProxies share an address, new connections arrive at the newer one's."""

import os
import select
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from msgspec.structs import replace as replaced

from nodeagent.components.relay import activation
from nodeagent.components.relay.haproxy_sockets import Unreachable, read_servers
from nodeagent.components.relay.steering import steer
from nodeagent.config.option_types import AbsolutePath
from nodeagent.config.options import RelayOptions
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Listener
from tests.components.relay.answering import Answer, answering, closes, garbage, hangs, says
from tests.components.relay.backend import SERVED, backend, connect, load, plain_backend, start_site, who
from tests.components.relay.node import NODE, POD, RELAY, RELAY_2, C, KeptRelay, isolated, listener
from tests.testbed.processes import alive
from tests.testbed.waiting import wait_until

A, B = listener(node=NODE), listener(RELAY_2, 80, proxy=None)
ALL = (A, B, C)
_MARK = "/run/not-a-socket"
_CONNECTIONS = 24
_DEFAULTS = RelayOptions()


def _haproxy(name: str, *listeners: Listener, options: RelayOptions = _DEFAULTS) -> KeptRelay:
    relay = KeptRelay(replaced(options, launch=True, run_dir=AbsolutePath(f"/run/{name}")))
    relay.serve(listeners or ALL)
    assert relay.ready_of(listeners or ALL) == {each.bind for each in listeners or ALL}
    return relay


def _pids(name: str) -> tuple[int, ...]:
    return activation.running(Path(f"/run/{name}/haproxy.cfg"))


def _kill(name: str) -> None:
    pids = _pids(name)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    # One that is ending has no program any more, but its sockets are still open.
    wait_until(lambda: not {*pids} & {*alive("haproxy")}, "its end", seconds=20)


def _steer(name: str, *listeners: Listener) -> frozenset[Endpoint]:
    return steer({each.bind for each in listeners or ALL}, Path(f"/run/{name}/relay.sock"))


def _counted(relay: KeptRelay) -> int:
    server = relay.servers()[A.bind]
    return server.connections + server.rejected


def _listening_here() -> set[Endpoint]:
    found = set()
    for number in Path("/proc/self/fd").iterdir():
        try:
            with socket.socket(fileno=os.dup(int(number.name))) as each:
                listens = each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if listens and each.family != socket.AF_UNIX:
                    found.add(Endpoint(ip_address(each.getsockname()[0]), each.getsockname()[1]))
        except OSError:
            continue  # not a socket
    return found


def _connections(bind: Endpoint) -> int:
    """Those of all HAProxies that answer."""
    told = (read_servers(path) for path in Path("/run").glob("*/relay.sock"))
    alive = (servers for servers in told if not isinstance(servers, Unreachable))
    return sum(each.connections for servers in alive for each in servers if each.bind == bind)


def _all_arrive_at(relay: KeptRelay, *listeners: Listener) -> bool:
    """Whether each of many new connections to each listener is one of this HAProxy's."""
    for each in listeners or ALL:
        wait_until(lambda bind=each.bind: not _connections(bind), "no connections", seconds=20)  # type: ignore[misc]
        with ExitStack() as closing:
            for _ in range(_CONNECTIONS):
                closing.enter_context(connect(each.bind))
            wait_until(lambda bind=each.bind: _connections(bind) == _CONNECTIONS, "all of them", seconds=20)  # type: ignore[misc]
            # With the kernel's hash, one in 16 million such runs would pass by chance.
            if relay.servers()[each.bind].connections != _CONNECTIONS:
                return False
    return True


@isolated
@pytest.mark.parametrize("threads", [1, 2])
def test_new_connections_arrive_at_the_new_haproxy_and_no_controller_sees_a_probe(threads: int) -> None:
    with backend(A.server) as seen, plain_backend(B.server), backend(C.server) as seen_6:
        old = _haproxy("old")
        assert _steer("old") == frozenset()  # it is alone
        new = _haproxy("new", options=RelayOptions(threads=threads))
        assert not _all_arrive_at(new)
        assert _steer("new") == {each.bind for each in ALL}
        assert _listening_here() == {each.server for each in ALL}
        own = [each for each in (*seen, *seen_6) if each.source in {"127.0.0.1", "::1"}]
        assert own == []
        assert _all_arrive_at(new)
        assert _steer("old") == {each.bind for each in ALL}
        assert _all_arrive_at(old)


@isolated
def test_neither_a_limit_nor_a_controller_that_is_away_matters() -> None:
    with backend(A.server), ExitStack() as closing:
        old = _haproxy("old", A)
        new = _haproxy("new", A, options=RelayOptions(max_connections_per_listener=1))
        for _ in range(8):
            with suppress(ConnectionResetError):  # rejected already
                closing.enter_context(connect(A.bind, POD))
        # A connection counts once HAProxy has accepted it: one of these must not be taken for the agent's.
        wait_until(lambda: _counted(old) + _counted(new) == 8, "eight connections counted", seconds=20)
        before = new.servers()[A.bind].rejected
        assert _steer("new", A) == {A.bind}
        # The agent's own connection ends with a rejection, counted once: the first index led here.
        wait_until(lambda: new.servers()[A.bind].rejected > before, "a rejection", seconds=20)
        assert new.servers()[A.bind].rejected == before + 1
    assert _steer("old", A) == {A.bind}
    assert _steer("new", A) == {A.bind}


@isolated
def test_more_listeners_than_one_message_has_sockets_are_steered() -> None:
    many = tuple(replace(A, bind=Endpoint(A.bind.address, port)) for port in range(1001, 1301))
    with backend(A.server):
        _haproxy("old", *many)
        new = _haproxy("new", *many)
        assert _steer("new", *many) == {each.bind for each in many}
        assert _all_arrive_at(new, *many[::50], many[-1])


@isolated
def test_a_listener_that_is_added_later_is_steered_in_the_next_pass() -> None:
    with backend(A.server), plain_backend(B.server), backend(C.server):
        _haproxy("old")
        new = _haproxy("new", A)
        assert _steer("new", A) == {A.bind}
        new.serve(ALL)
        assert new.ready_of(ALL) == {each.bind for each in ALL}
        assert _all_arrive_at(new, A)
        assert not _all_arrive_at(new, C)
        assert _steer("new") == {each.bind for each in ALL}
        assert _all_arrive_at(new)


@isolated
def test_when_one_of_them_dies_the_other_serves() -> None:
    with backend(A.server):
        old = _haproxy("old", A)
        _haproxy("new", A)
        assert _steer("new", A) == {A.bind}
        _kill("new")
        assert _all_arrive_at(old, A)
        new = _haproxy("new", A)
        assert _steer("new", A) == {A.bind}
        _kill("old")
        assert _all_arrive_at(new, A)
        _haproxy("old", A)
        # The index that was verified is the old one's now. It serves, and the next pass tries again.
        assert who(A.bind) == f"v1 {NODE}"
        assert _steer("new", A) == {A.bind}
        assert _all_arrive_at(new, A)
        # Nor does the index matter that an agent left without verifying it.
        third = _haproxy("third", A)
        assert _steer("old", A) == {A.bind}
        assert _steer("third", A) == {A.bind}
        assert _all_arrive_at(third, A)


@isolated
def test_another_program_of_the_same_user_that_listens_last_gets_nothing() -> None:
    with backend(A.server), socket.socket() as stray:
        _haproxy("old", A)
        new = _haproxy("new", A)
        stray.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        stray.bind((RELAY, 443))
        stray.listen()
        assert _steer("new", A) == {A.bind}
        # One of the agent's own, which has ended.
        stray.accept()[0].close()
        assert _all_arrive_at(new, A)
        assert not select.select([stray], [], [], 0)[0]


def _sends(*paths: str) -> Answer:
    """Announce two sockets, and send other descriptors: of these files, and one that does not listen."""

    def answer(connection: socket.socket) -> None:
        connection.sendall((2).to_bytes(4, sys.byteorder))
        with ExitStack() as stack, socket.socket() as unbound:
            files = [stack.enter_context(Path(path).open("w")).fileno() for path in paths]
            socket.send_fds(connection, [b"x"], [*files, unbound.fileno()])

    return answer


@isolated
@pytest.mark.parametrize(
    "answer", [None, closes, hangs, garbage, says(b"\xff" * 3 + b"\x7f"), _sends(_MARK), _sends()]
)
def test_whatever_fails_is_an_error_and_both_serve(answer: Answer | None) -> None:
    with backend(A.server), ExitStack() as stack:
        _haproxy("old", A)
        _haproxy("new", A)
        path = Path("/run/new/relay.sock")
        if answer is None:
            path.unlink()
        else:
            stack.enter_context(answering(path, answer))
        with pytest.raises(OSError, match=r"."):
            _steer("new", A)
        assert {who(A.bind) for _ in range(20)} == {f"v1 {NODE}"}
        assert _listening_here() == {A.server}
        assert _MARK not in map(os.path.realpath, Path("/proc/self/fd").iterdir())


@isolated
def test_haproxy_without_its_connections_counts_as_another_one() -> None:
    """Its `show sess` shows none of the agent's: the hash is used again, the error says for which address."""
    with backend(A.server):
        _haproxy("old", A)
        new = _haproxy("new", A)
        socket_of_new = Path("/run/new/relay.sock")
        real = socket_of_new.rename("/run/new/real.sock")

        def other_sessions(connection: socket.socket) -> None:
            command = connection.recv(100)
            with socket.socket(socket.AF_UNIX) as haproxy:
                haproxy.connect(str(real))
                haproxy.sendall(command)
                if command == b"_getsocks\n":
                    count, descriptors, _, _ = socket.recv_fds(haproxy, 4, 10)
                    data, more, _, _ = socket.recv_fds(haproxy, 1000, 10)
                    connection.sendall(count)
                    socket.send_fds(connection, [data], [*descriptors, *more])
                    for each in (*descriptors, *more):
                        os.close(each)

        with (
            answering(socket_of_new, other_sessions),
            pytest.raises(OSError, match=r"^no index leads to this HAProxy at 169\.254\.66\.5:443$"),
        ):
            _steer("new", A)
        real.replace(socket_of_new)
        assert not _all_arrive_at(new, A)


@isolated
def test_hand_overs_under_load_reset_no_connection(soak: bool) -> None:
    times = 200 if soak else 5
    start_site(A.server)
    _haproxy("0", A)
    with load(A.bind, 1000) as (answers, await_more):
        for number in range(1, times + 1):
            old, new = str((number - 1) % 2), str(number % 2)
            _haproxy(new, A)
            assert _steer(new, A) == {A.bind}
            await_more(2)  # One after the other: what the old one was answering has ended.
            # Whatever still arrived at the old one would wait in its queue, and be lost when that is closed.
            workers = _pids(old)[1:]
            for pid in workers:
                os.kill(pid, signal.SIGSTOP)
            await_more(50)
            activation.drain(_pids(old), Path(f"/run/{old}/haproxy.cfg"))
            for pid in workers:
                os.kill(pid, signal.SIGCONT)
            wait_until(lambda old=old: not _pids(old), "the end of the old one", seconds=20)  # type: ignore[misc]
    assert set(answers) == {SERVED}
