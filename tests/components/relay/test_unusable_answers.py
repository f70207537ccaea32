"""HAProxy's sockets answer in a way for whatever reason unusable: the relay serves, only later."""

import pytest

from nodeagent.components.relay.haproxy_sockets import Unreachable
from nodeagent.errors import ApplyError
from tests.components.relay.answering import Answer, answering, garbage, hangs
from tests.components.relay.backend import backend, who
from tests.components.relay.namespace import (
    CONFIG,
    MASTER,
    RELAY,
    RELAY_2,
    RUN,
    SIDECAR,
    A,
    B,
    KeptRelay,
    isolated,
)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less; but as long as a reload takes on a busy machine."""
    for module in ("activation", "component"):
        monkeypatch.setattr(f"nodeagent.components.relay.{module}._ASK_SECONDS", 0.2)
    monkeypatch.setattr("nodeagent.components.relay.activation._ACTIVE_SECONDS", 4.0)


@isolated
@pytest.mark.parametrize("answer", [hangs, garbage])
def test_a_worker_that_can_not_be_asked_serves_what_is_added(answer: Answer) -> None:
    relay = _serving()
    # HAProxy would make its own again at the reload.
    other = relay._directory.stats_socket = RUN / "other.sock"  # noqa: SLF001
    with backend(A.server), answering(other, answer):
        assert isinstance(relay.statistics(), Unreachable)
        assert relay.ready([A]) == {A.bind}
        assert relay.apply(relay.difference([A, B])) == ""
        assert relay.ready([A, B]) == {A.bind, B.bind}
        assert who(B.bind) == f"v1 {RELAY_2}"


@isolated
@pytest.mark.parametrize("answer", [hangs, garbage])
def test_a_master_that_can_not_be_asked_leaves_what_it_serves(answer: Answer) -> None:
    """The new configuration is installed, for the moment in which HAProxy is started again."""
    _serving()
    relay = KeptRelay(SIDECAR)
    with backend(A.server):
        with answering(MASTER, answer):
            assert not relay.read().running
            with pytest.raises(ApplyError, match=r"^no HAProxy answers at .*: "):
                relay.serve([A, B])
            assert relay.ready([A]) == {A.bind}
            assert who(A.bind) == f"v1 {RELAY}"
        assert str(B.bind) in CONFIG.read_text()


def _serving() -> KeptRelay:
    relay = KeptRelay()
    relay.serve([A])
    return relay
