import gzip
import socket
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from kubernetes.client import ApiClient

from nodeagent.errors import SourceError
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes import connection as connection_module
from nodeagent.sources.kubernetes import errors, listing
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.credentials import kubeconfig
from nodeagent.sources.kubernetes.single_requests import delete_and_wait, read_cluster
from tests.apiserver import ApiServer, faults, objects
from tests.cases import cases_of
from tests.cli.command_line import Ask

SERVICES = "/api/v1/services"


def kinds(connection: Connection) -> str:
    return connection.get_json(SERVICES)[:21].decode()


LIST = '{"kind":"ServiceList"'


def refused(connection: Connection, kind: type[errors.ApiError], words: str | None = None) -> str:
    with pytest.raises(kind, match=words) as caught:
        connection.get_json(SERVICES)
    return str(caught.value)


def test_bytes_are_counted_as_they_came_over_the_wire(api: ApiServer, connection: Connection) -> None:
    api.store.create_many(objects.ingresses(1000))
    body = connection.get_json("/apis/networking.k8s.io/v1/ingresses", compressed=True)
    assert len(body) > 500_000
    assert connection.bytes_read == len(gzip.compress(body, 1)) < len(body) / 5


def test_connections_are_used_again(
    api: ApiServer, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    connect = socket.socket.connect

    def counted(self: socket.socket, address: tuple[str, int]) -> None:
        opened.append(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", counted)
    for _ in range(3):
        assert kinds(connection) == LIST
    api.faults.add(faults.Answer(404), path=SERVICES)
    refused(connection, errors.NotFoundError)
    assert kinds(connection) == LIST
    assert opened == [("127.0.0.1", api.port)]


@pytest.mark.parametrize("command", ["plan", "coredns plan"])
def test_a_command_that_reads_once_waits_for_an_answer_and_for_all_of_them_no_longer_than_it_says(
    api: ApiServer, ask: Ask, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    api.faults.add(faults.Hold(), path=SERVICES, times=None)
    for answer, patience, words in ((0.2, 60.0, "no answer in time"), (60.0, 0.0, "not asked: ")):
        monkeypatch.setattr(connection_module, "_ANSWER_SECONDS", answer)
        monkeypatch.setattr(connection_module, "_PATIENCE_SECONDS", patience)
        assert words in ask(command).stderr


def test_the_time_of_a_plugin_that_waits_for_a_login_does_not_count(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Mock(wraps=time)
    monkeypatch.setattr(connection_module, "time", clock)
    file = api.write_kubeconfig(tmp_path / "config")

    def logged_in() -> ApiClient:
        now = time.monotonic() + 120
        clock.monotonic.side_effect = lambda: now
        return kubeconfig(str(file))

    with Connection(logged_in, once=True) as connection:
        assert kinds(connection) == LIST


def test_a_proxys_404_is_no_deleted_workload(api: ApiServer, connection: Connection) -> None:
    """Otherwise `uninstall` would report success. While the pods end, it goes on waiting."""
    api.store.create(objects.daemon_set("agents"))
    workload = ObjectRef("DaemonSet", "kube-system", "agents")
    api.faults.add(faults.Answer(404), path="*/daemonsets/agents", verbs=["delete"])
    with pytest.raises(errors.NotFoundError):
        delete_and_wait(connection, workload, 5.0, lambda _: None)
    api.faults.add(faults.Answer(404), path="*/daemonsets/agents", verbs=["get"], times=None)
    with pytest.raises(SourceError, match="its pods did not end within 2 s"):
        delete_and_wait(connection, workload, 2.0, lambda _: None)


def test_a_workload_is_deleted_once_and_an_api_server_in_trouble_is_asked_again(
    api: ApiServer, connection: Connection
) -> None:
    api.store.create(objects.daemon_set("agents"))
    workload = ObjectRef("DaemonSet", "kube-system", "agents")
    api.faults.add(faults.Answer(503), path="*/daemonsets/agents", verbs=["get"])
    said: list[str] = []

    def end_its_pods(text: str) -> None:
        said.append(text)
        api.store.replace_all("daemonsets", ())

    assert [delete_and_wait(connection, workload, 9.0, end_its_pods) for _ in range(2)] == [True, False]
    assert len(said) == 1


@pytest.mark.parametrize(("fault", "kind", "words"), cases_of(__file__, "cases.yaml")["failures"])
def test_each_failure_has_its_error(
    api: ApiServer, connection: Connection, fault: dict[str, Any], kind: str, words: str
) -> None:
    api.faults.add(faults.made(**fault), path=SERVICES, times=None)
    refused(connection, getattr(errors, kind), words)
    api.faults.clear()
    assert kinds(connection) == LIST


def test_an_answer_has_a_bound_and_of_a_longer_refusal_only_the_number_counts(
    api: ApiServer, connection: Connection
) -> None:
    for size in (16 << 20, (16 << 20) + 1):
        api.faults.add(faults.Answer(200, body=b"{}".ljust(size)), path=SERVICES)
    assert len(connection.get_json(SERVICES)) == 16 << 20
    refused(connection, errors.TooLargeError, "more than 16777216 bytes")
    status = b'{"status": "Failure", "message": "no quorum"}'
    for size, words in ((65_536, "no quorum"), (65_537, "gives no reason")):
        api.faults.add(faults.Answer(500, body=status.ljust(size)), path=SERVICES)
        refused(connection, errors.ServerTroubleError, words)


def test_a_server_that_can_not_be_reached_is_asked_once() -> None:
    """A person waits ten seconds for each attempt."""
    connection = Mock(spec=Connection)
    connection.get_json.side_effect = errors.NoConnectionError("no route")
    with pytest.raises(errors.NoConnectionError):
        read_cluster(connection, "n1")
    connection.get_json.assert_called_once()


def test_a_server_that_does_not_answer(api: ApiServer, connection: Connection) -> None:
    hold = faults.Hold()
    api.faults.add(hold, times=None)
    with pytest.raises(errors.UnreachableError, match="no answer in time"):
        connection.get_json(SERVICES, timeout=0.1)
    hold.release()


def interrupted(api: ApiServer, connection: Connection) -> None:
    """Open a stream, and have another thread end it after an event."""
    stream = connection.open_stream(SERVICES, {"watch": "true", "resourceVersion": str(api.store.revision)})
    found = listing.lines(stream.pieces())
    api.store.create(objects.service("web"))
    assert next(found).startswith(b'{"type":"ADDED"')
    stream.interrupt()
    with pytest.raises((StopIteration, errors.UnreachableError)):
        next(found)
    stream.close()
    stream.interrupt()


def test_a_stream_is_interrupted_by_another_thread(api: ApiServer, connection: Connection) -> None:
    interrupted(api, connection)
    assert kinds(connection) == LIST


@pytest.mark.parametrize("reset", [False, True])
def test_a_kept_connection_that_broke_is_replaced(
    api: ApiServer, connection: Connection, reset: bool
) -> None:
    """But a write is not sent twice: the first could have been done."""
    assert kinds(connection) == LIST
    api.faults.add(faults.Disconnect(reset=reset))
    assert kinds(connection) == LIST
    armed = api.faults.add(faults.Disconnect(reset=reset), times=None)
    with pytest.raises(errors.UnreachableError):
        connection.write("create", "/api/v1/namespaces/default/events", {})
    assert armed.used == 1
