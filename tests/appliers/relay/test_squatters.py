"""Other users of the node can neither pass for HAProxy nor keep it from what they don't hold."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.appliers.relay.reserving import reserved
from tests.appliers.relay.backend import backend, who
from tests.appliers.relay.condition import alive, eventually
from tests.appliers.relay.namespace import RELAY, applier, isolated, listener
from tests.testbed.squatter import command

A, B = listener(), listener(port=5000)


@contextmanager
def _squatter(port: int, address: str = RELAY) -> Iterator[bool]:
    """Yields whether the user got the port."""
    with subprocess.Popen(
        command(address, port), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline() == b"bound\n"
        finally:
            process.kill()


@isolated
def test_a_port_taken_between_plan_and_reload_is_left_out_with_its_user() -> None:
    relays = applier()
    change = relays.change([A, B])
    with _squatter(5000) as bound, backend(A.server):
        assert bound
        assert relays.apply(change) == {B.bind: "user 65534"}
        assert relays.read().listeners == (A,)
        assert relays.ready([A, B]) == {A.bind}
        assert who(A.bind) == f"v1 {RELAY}"
        assert relays.port_holders() == {B.bind: 65534}
    assert relays.port_holders() == {}
    assert relays.apply(relays.change([A, B])) == {}
    assert relays.ready([A, B]) == {A.bind, B.bind}


@isolated
def test_a_wildcard_counts_too() -> None:
    relays = applier()
    with _squatter(5000, "::") as bound:
        assert bound
        assert relays.apply(relays.change([A, B])) == {B.bind: "user 65534"}
        assert relays.ready([A, B]) == {A.bind}


@isolated
def test_while_haproxy_binds_nobody_else_can() -> None:
    with reserved([A.bind, B.bind]) as taken:
        assert taken == {}
        with _squatter(5000) as bound:
            assert not bound
        with _squatter(5000, "0.0.0.0") as bound:
            assert not bound
    with _squatter(5000) as bound:
        assert bound


@isolated
def test_what_answers_in_the_place_of_a_dead_haproxy_is_not_ready() -> None:
    relays = applier()
    relays.apply(relays.change([A, B]))
    assert relays.ready([B]) == {B.bind}
    for pid in alive("haproxy"):
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not alive("haproxy"))
    with _squatter(5000) as bound:
        assert bound
        assert relays.ready([A, B]) == frozenset()
