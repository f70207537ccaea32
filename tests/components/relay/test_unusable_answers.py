"""HAProxy's sockets answer in a way for whatever reason unusable: the relay serves, only later."""

import pytest

from nodeagent.components.relay.haproxy_sockets import Unreachable
from nodeagent.errors import ApplyError
from tests.components.relay.answering import Answer, answering, garbage, hangs
from tests.components.relay.backend import backend, who
from tests.components.relay.namespace import (
    PODS,
    RELAY,
    RELAY_2,
    RUN,
    A,
    B,
    KeptRelay,
    isolated,
    pod_directory,
    start_pod,
)
from tests.testbed.waiting import wait_until


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less; but as long as a reload takes on a busy machine."""
    monkeypatch.setattr("nodeagent.components.relay.haproxy_sockets.ASK_SECONDS", 0.2)
    monkeypatch.setattr("nodeagent.components.relay.activation._ACTIVE_SECONDS", 4.0)


@isolated
@pytest.mark.parametrize("answer", [hangs, garbage])
def test_a_worker_that_can_not_be_asked_serves_what_is_added(answer: Answer) -> None:
    relay = _serving()
    # HAProxy would make its own again at the reload.
    other = relay._launched.stats_socket = RUN / "other.sock"  # noqa: SLF001
    with backend(A.server), answering(other, answer):
        assert isinstance(relay.statistics(), Unreachable)
        assert relay.ready_of([A]) == {A.bind}
        assert relay.apply(relay.difference([A, B])) == ""
        assert relay.ready_of([A, B]) == {A.bind, B.bind}
        assert who(B.bind) == f"v1 {RELAY_2}"


@isolated
@pytest.mark.parametrize("answer", [hangs, garbage])
def test_a_master_that_can_not_be_asked_leaves_what_it_serves(answer: Answer) -> None:
    relay = KeptRelay(PODS)
    start_pod("a")
    wait_until(lambda: any(each.running for each in relay.read().haproxies), "the pod", seconds=20)
    relay.serve([A])
    with backend(A.server), answering(pod_directory("a").master_socket, answer):
        assert not any(each.running for each in relay.read().haproxies)
        with pytest.raises(ApplyError, match=r"^no relay pod's HAProxy answers in "):
            relay.serve([A, B])
        assert relay.ready_of([A]) == {A.bind}
        assert who(A.bind) == f"v1 {RELAY}"


def _serving() -> KeptRelay:
    relay = KeptRelay()
    relay.serve([A])
    return relay
