import threading
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from nodeagent.sources.kubernetes import errors
from nodeagent.sources.kubernetes.connection import Connection
from tests.apiserver import ApiServer, Rule, faults
from tests.apiserver.containers import Ended
from tests.cases import cases_of

from .watching import connected

_PODS = "/api/v1/namespaces/nodeagent/pods"
_WHERE = f"{_PODS}/nodeagent-1", "agent"
_EXEC = "*/exec"


@pytest.fixture(autouse=True)
def _pod(api: ApiServer) -> None:
    metadata = {"namespace": "nodeagent", "name": "nodeagent-1"}
    api.store.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    _answering(api, Ended())


def _answering(api: ApiServer, answer: Ended) -> list[list[str]]:
    """Let the container answer so to every command; give the commands that it will have been given."""
    given: list[list[str]] = []

    def program(command: Sequence[str]) -> Ended:
        given.append(list(command))
        return answer

    api.containers.run("nodeagent", "nodeagent-1", "agent", program)
    return given


def _run(connection: Connection, *command: str, timeout: float = 10) -> CompletedProcess[bytes]:
    return connection.execute(*_WHERE, [*command] or ["true"], timeout=timeout)


@pytest.mark.parametrize("answer", [Ended(), Ended(3, bytes(range(256)) * 1000, "trouble: ü".encode())])
def test_what_a_program_prints_and_how_it_ends(api: ApiServer, connection: Connection, answer: Ended) -> None:
    given = _answering(api, answer)
    done = _run(connection, "cat", "a b", "", "&c=d")
    assert given == [["cat", "a b", "", "&c=d"]]
    assert (done.returncode, done.stdout, done.stderr) == (answer.exit_code, answer.stdout, answer.stderr)


def test_more_than_is_wanted_is_not_taken(api: ApiServer, connection: Connection) -> None:
    most = 16 << 20
    _answering(api, Ended(0, b"x" * most))
    assert len(_run(connection).stdout) == most
    _answering(api, Ended(0, b"x" * (most + 1)))
    with pytest.raises(errors.ApiError, match=f"more than {most} bytes"):
        _run(connection)


def test_a_container_that_does_not_run(api: ApiServer, connection: Connection) -> None:
    with pytest.raises(errors.ServerTroubleError, match="container not found"):
        connection.execute(f"{_PODS}/nodeagent-1", "relay", ["cat"], timeout=10)
    with pytest.raises(errors.NotFoundError, match=r'pods "nodeagent-2" not found'):
        connection.execute(f"{_PODS}/nodeagent-2", "agent", ["cat"], timeout=10)


@pytest.mark.parametrize("verbs", [["get"], ["create"]])
def test_both_rights_are_needed_and_the_rule_is_named(
    api: ApiServer, connection: Connection, verbs: list[str]
) -> None:
    api.access.allow_only([Rule([""], ["pods/exec"], verbs)])
    with pytest.raises(errors.ForbiddenError, match=r'resources: \["pods/exec"\], verbs: \["create"\]'):
        _run(connection)
    api.access.allow_only([Rule([""], ["pods/exec"], ["get", "create"])])
    assert _run(connection).returncode == 0


def test_credentials_are_sent_and_renewed_once(api: ApiServer, tmp_path: Path) -> None:
    api.access.require_token("first")
    with connected(api, tmp_path) as connection:
        assert _run(connection).returncode == 0
        api.access.require_token("second")
        api.access.revoke_token("first")
        with pytest.raises(errors.UnauthorizedError):
            _run(connection)


def test_a_node_that_does_not_answer_is_given_up_in_time(api: ApiServer, connection: Connection) -> None:
    held = api.faults.add(faults.Hold(), path=_EXEC)
    with pytest.raises(errors.UnreachableError, match="no answer in time"):
        _run(connection, timeout=0.3)
    api.faults.remove(held)


def test_a_program_that_does_not_end_is_given_up_in_time(api: ApiServer, connection: Connection) -> None:
    released = threading.Event()

    def program(_: Sequence[str]) -> Ended:
        released.wait(5)
        return Ended()

    api.containers.run("nodeagent", "nodeagent-1", "agent", program)
    began = time.monotonic()
    with pytest.raises(errors.UnreachableError, match="no answer in time"):
        _run(connection, timeout=0.3)
    assert time.monotonic() - began < 4
    released.set()


@pytest.mark.parametrize(("fault", "error"), cases_of(__file__, "cases.yaml")["handshakes"])
def test_no_websocket(api: ApiServer, connection: Connection, fault: dict[str, Any], error: str) -> None:
    """The server cuts the handshake, or gives a page instead."""
    api.faults.add(faults.made(**fault), path=_EXEC)
    with pytest.raises(getattr(errors, error)):
        _run(connection)


@pytest.mark.parametrize("after", [0, 1, 2, 50, 70_000, 100_050])
def test_an_answer_that_breaks_off_never_passes_for_a_whole_one(
    api: ApiServer, connection: Connection, after: int
) -> None:
    _answering(api, Ended(0, b"x" * 100_000))
    api.faults.add(faults.CutBody(after), path=_EXEC)
    with pytest.raises(errors.UnreachableError):
        _run(connection)
