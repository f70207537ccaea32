"""Other users of the node can neither pass for HAProxy nor keep it from what they don't hold."""

import os
import re
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nodeagent.components.component import PartlyAppliedError
from nodeagent.components.relay import Relay
from nodeagent.errors import ApplyError
from tests.components.relay.backend import backend, who
from tests.components.relay.condition import alive, eventually
from tests.components.relay.namespace import (
    RELAY,
    apply,
    clean_up,
    difference,
    isolated,
    listener,
    relay_component,
)
from tests.testbed.squatter import command

A, B = listener(), listener(port=5000)


@contextmanager
def _squatter(port: int, address: str = RELAY, *options: str) -> Iterator[bool]:
    """Yields whether the user got the port."""
    with subprocess.Popen(
        command(address, port, *options), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline() == b"bound\n"
        finally:
            process.kill()


_TAKEN = re.escape(f"{B.bind} is held by a process of user 65534; the others are served")


@isolated
def test_a_port_taken_between_plan_and_reload_is_left_out_with_its_user() -> None:
    relays = relay_component()
    change = difference(relays, [A, B])
    with _squatter(5000) as bound, backend(A.server):
        assert bound
        with pytest.raises(PartlyAppliedError, match=f"^{_TAKEN}$") as caught:
            change.grow.apply()
        assert caught.value.applied.startswith("+ listen 169.254.66.5:443 ")
        assert relays.read().listeners == (A,)
        assert relays.ready([A, B]) == {A.bind}
        assert who(A.bind) == f"v1 {RELAY}"
        assert relays.port_holders() == {B.bind: 65534}
    assert relays.port_holders() == {}
    apply(relays, [A, B])
    assert relays.ready([A, B]) == {A.bind, B.bind}


@isolated
def test_a_wildcard_counts_too() -> None:
    relays = relay_component()
    with _squatter(5000, "::") as bound:
        assert bound
        with pytest.raises(PartlyAppliedError, match=f"^{_TAKEN}$"):
            apply(relays, [A, B])
        assert relays.ready([A, B]) == {A.bind}


def _taken(port: int) -> set[tuple[str, ...]]:
    """By which address and socket options another user gets the port."""
    got = set()
    for address in (RELAY, "0.0.0.0"):
        for options in ((), ("SO_REUSEADDR",), ("SO_REUSEPORT",), ("SO_REUSEADDR", "SO_REUSEPORT")):
            with _squatter(port, address, *options) as bound:
                if bound:
                    got.add((address, *options))
    return got


def _kill_haproxy() -> None:
    for pid in alive("haproxy"):
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not alive("haproxy"))


def _later(relays: Relay) -> Relay:
    """Another agent's, which finds all as desired."""
    later = relay_component()
    change = difference(later, relays.read().listeners)
    assert not change
    assert change.grow.apply() == change.detail.before
    return later


@isolated
def test_while_haproxy_is_dead_no_other_user_gets_a_port() -> None:
    """Neither while two agents run, as in an upgrade, nor while the later one does; then HAProxy gets it."""
    relays = relay_component()
    with backend(B.server):
        apply(relays, [A, B])
        # Who leaves first keeps the port for a minute (TIME_WAIT).
        with socket.create_connection((RELAY, 5000)):
            pass
        later = _later(relays)
        _kill_haproxy()
        assert _taken(5000) == set()
        assert later.ready([A, B]) == frozenset()
        relays.release()
        assert _taken(5000) == set()
        apply(later, [A, B])
        assert later.ready([A, B]) == {A.bind, B.bind}
        assert who(B.bind) == f"v1 {RELAY}"


@isolated
def test_a_port_is_held_when_its_address_is_removed_and_added_again() -> None:
    relays = relay_component()
    apply(relays, [A, B])
    _kill_haproxy()
    for verb in ("del", "add"):
        subprocess.run(["ip", "address", verb, f"{RELAY}/32", "dev", "lo"], check=True)
        assert _taken(5000) == set()


@isolated
def test_ports_that_are_no_longer_wanted_are_released() -> None:
    relays = relay_component()
    apply(relays, [A, B])
    apply(relays, [A])
    assert eventually(lambda: len(_taken(5000)) == 8)
    clean_up(relays)
    assert len(_taken(443)) == 0, "low ports are root's"
    apply(relays, [A, B])
    clean_up(relays)
    assert len(_taken(5000)) == 8


@isolated
def test_more_ports_than_the_soft_limit_are_held() -> None:
    many = [listener(port=port) for port in range(5000, 5400)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    relays = relay_component()
    apply(relays, many)
    _kill_haproxy()
    assert _taken(5399) == set()


@isolated
def test_too_few_descriptors_to_hold_the_ports_are_reported() -> None:
    """And what runs keeps running."""
    relays = relay_component()
    many = [listener(port=port) for port in range(5000, 5400)]
    apply(relays, many)
    relays.release()
    resource.setrlimit(resource.RLIMIT_NOFILE, (1100, 1100))
    with pytest.raises(ApplyError, match="could not be held"):
        apply(relays, many)
    relays.release()
    assert len(relays.ready(many)) == 400


@isolated
def test_a_port_that_a_user_keeps_for_haproxys_death_is_left_out() -> None:
    """His socket allows HAProxy's, and does not listen: it could, once HAProxy is dead."""
    relays = relay_component()
    told = re.escape(f"{B.bind} is held by a process of ")
    with _squatter(5000, RELAY, "SO_REUSEADDR", "silent") as bound:
        assert bound
        with pytest.raises(PartlyAppliedError, match=told):
            apply(relays, [A, B])
        assert relays.read().listeners == (A,)
        before = alive("haproxy")
        with pytest.raises(PartlyAppliedError, match=told):
            apply(relays, [A, B])
        assert alive("haproxy") == before, "nothing was to be done"
