"""Other users of the node can neither pass for HAProxy nor keep it from what they don't hold."""

import os
import resource
import signal
import socket
import subprocess

import pytest

from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired
from tests.components.converging import add
from tests.components.relay.backend import backend, who
from tests.components.relay.node import RELAY, KeptRelay, isolated, listener
from tests.testbed.processes import alive
from tests.testbed.squatter import squatter
from tests.testbed.waiting import wait_until

A, B = listener(), listener(port=5000)


_TAKEN = f"{B.bind}: it is held by a process of user 65534; the others are served"


@isolated
def test_a_port_taken_between_plan_and_reload_is_left_out_with_its_user(relays: KeptRelay) -> None:
    with squatter(5000, RELAY) as bound, backend(A.server):
        assert bound
        done = add(relays, Desired(listeners=(A, B)))
        assert done.failure == _TAKEN
        assert done.text.startswith("+ listen 169.254.66.5:443 ")
        assert str(B.bind) not in done.text
        assert relays.read().listeners == (A,)
        assert relays.ready_of([A, B]) == {A.bind}
        assert who(A.bind) == f"v1 {RELAY}"
        assert relays.port_holders() == {B.bind: 65534}
    assert relays.port_holders() == {}
    with squatter(5000, "::") as bound:
        assert bound
        assert relays.serve_what_it_can([A, B]) == _TAKEN
        assert relays.ready_of([A, B]) == {A.bind}
    relays.serve([A, B])
    assert relays.ready_of([A, B]) == {A.bind, B.bind}


def _taken(port: int) -> set[tuple[str, ...]]:
    """By which address and socket options another user gets the port."""
    got = set()
    for address in (RELAY, "0.0.0.0"):
        for options in ((), ("SO_REUSEADDR",), ("SO_REUSEPORT",), ("SO_REUSEADDR", "SO_REUSEPORT")):
            with squatter(port, address, *options) as bound:
                if bound:
                    got.add((address, *options))
    return got


def _kill_haproxy() -> None:
    for pid in alive("haproxy"):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive("haproxy"), "HAProxy's end", seconds=20)


@isolated
def test_while_haproxy_is_dead_no_other_user_gets_a_port(relays: KeptRelay) -> None:
    """Neither while one agent runs nor while the one after it does; then HAProxy gets it."""
    with backend(B.server):
        relays.serve([A, B])
        # Who leaves first keeps the port for a minute (TIME_WAIT).
        with socket.create_connection((RELAY, 5000)):
            pass
        later = KeptRelay()
        assert not later.difference([A, B])
        later.reserve(Desired(listeners=(A, B)))
        _kill_haproxy()
        assert _taken(5000) == set()
        assert later.ready_of([A, B]) == frozenset()
        relays.reserve(Desired())
        assert _taken(5000) == set()
        later.serve([A, B])
        assert later.ready_of([A, B]) == {A.bind, B.bind}
        assert who(B.bind) == f"v1 {RELAY}"


@isolated
def test_a_port_is_held_when_its_address_is_removed_and_added_again(relays: KeptRelay) -> None:
    relays.serve([A, B])
    _kill_haproxy()
    for verb in ("del", "add"):
        subprocess.run(["ip", "address", verb, f"{RELAY}/32", "dev", "lo"], check=True)
        assert _taken(5000) == set()


@isolated
def test_ports_that_are_no_longer_wanted_are_released(relays: KeptRelay) -> None:
    relays.serve([A, B])
    relays.serve([A])
    wait_until(lambda: len(_taken(5000)) == 8, "the port being free", seconds=20)
    relays.clean_up()
    assert len(_taken(443)) == 0, "low ports are root's"
    relays.serve([A, B])
    relays.clean_up()
    assert len(_taken(5000)) == 8


@isolated
def test_more_ports_than_the_soft_limit_are_held_and_the_hard_one_is_reported(relays: KeptRelay) -> None:
    many = [listener(port=port) for port in range(5000, 5400)]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    relays.serve(many[:200])
    relays.serve(many)
    _kill_haproxy()
    assert _taken(5399) == set()
    relays.serve(many)
    relays.reserve(Desired())
    resource.setrlimit(resource.RLIMIT_NOFILE, (1100, 1100))
    with pytest.raises(ApplyError, match="could not be held"):
        relays.reserve(Desired(listeners=tuple(many)))
    relays.reserve(Desired())
    assert len(relays.ready_of(many)) == 400


@isolated
def test_a_port_that_a_user_keeps_for_haproxys_death_is_left_out(relays: KeptRelay) -> None:
    """His socket allows HAProxy's, and does not listen: it could, once HAProxy is dead."""
    told = f"{B.bind}: it is held by a process of "
    with squatter(5000, RELAY, "SO_REUSEADDR", "silent") as bound:
        assert bound
        assert relays.serve_what_it_can([A, B]).startswith(told)
        assert relays.read().listeners == (A,)
        before = alive("haproxy")
        assert relays.serve_what_it_can([A, B]).startswith(told)
        assert alive("haproxy") == before, "nothing was to be done"
