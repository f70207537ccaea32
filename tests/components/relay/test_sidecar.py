import time

import pytest

from nodeagent.errors import ApplyError
from tests.components.relay.condition import alive, eventually
from tests.components.relay.namespace import (
    CONFIG,
    RUN,
    SIDECAR,
    A,
    B,
    KeptRelay,
    isolated,
    listener,
    start_sidecar,
)


@isolated
def test_no_listeners_and_cleanup_leave_the_sidecar_running_without_any() -> None:
    relays = KeptRelay(SIDECAR)
    sidecar = start_sidecar()
    relays.apply([A])
    relays.apply([])
    assert relays.ready([A]) == frozenset()
    assert not relays.difference([])
    relays.apply([A])
    relays.clean_up()
    relays.clean_up()
    assert relays.ready([A]) == frozenset()
    assert relays.read().listeners == ()
    assert relays.read().current
    assert sidecar.poll() is None


@isolated
def test_an_absent_sidecar_is_an_error_that_says_what_to_do() -> None:
    relays = KeptRelay(SIDECAR)
    assert not relays.difference([])
    change = relays.difference([A])
    assert change.detail.action == "reload"
    started = time.monotonic()
    with pytest.raises(ApplyError) as caught:
        change.shrink.apply()
    assert time.monotonic() - started < 5
    for words in ("no HAProxy answers at /run/nodeagent/master.sock", "relay.launch: true", str(CONFIG)):
        assert words in str(caught.value)
    assert alive("haproxy") == []
    # What was asked for is in the file, and a sidecar that starts later serves it.
    assert relays.read().listeners == (A,)
    start_sidecar()
    assert eventually(lambda: not relays.difference([A]))


@isolated
def test_cleanup_without_a_sidecar_removes_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeagent.components.relay.activation._SIDECAR_SECONDS", 0.1)
    relays = KeptRelay(SIDECAR)
    with pytest.raises(ApplyError):
        relays.apply([A])
    relays.clean_up()
    assert not RUN.exists()
    assert not relays.difference([])


@isolated
def test_a_sidecar_is_steered_without_a_haproxy_program_beside_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relays = KeptRelay(SIDECAR)
    start_sidecar()
    relays.apply([A])
    monkeypatch.setenv("PATH", "/nonexistent")
    relays.apply([A, B])
    assert relays.ready([A, B]) == {A.bind, B.bind}
    before = CONFIG.read_bytes()
    with pytest.raises(ApplyError, match="Cannot assign requested address"):
        relays.apply([A, listener("169.254.66.99")])
    assert CONFIG.read_bytes() == before
    assert relays.ready([A, B]) == {A.bind, B.bind}
