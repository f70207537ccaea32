"""Everything that can be made to go wrong."""

import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.testbed.waiting import wait_until

from . import faults
from .objects import ingress
from .server import ApiServer
from .wire import WatchLines, exchange, request

INGRESSES = "/apis/networking.k8s.io/v1/ingresses"


def raw_watch(api: ApiServer, target: str) -> socket.socket:
    """Open a watch and give the bare socket, its answer unread."""
    connection = socket.create_connection(("127.0.0.1", api.port), timeout=5)
    connection.sendall(f"GET {target} HTTP/1.1\r\nHost: api\r\n\r\n".encode())
    return connection


def chunks(data: bytes) -> list[bytes]:
    """Part an answer's chunked body into its chunks; an unfinished last one is given as it is."""
    rest = data.partition(b"\r\n\r\n")[2]
    found = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        found.append(rest[:length])
        rest = rest[length + 2 :]
    return found


def read_all(connection: socket.socket) -> bytes:
    """Read until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_error_answers_strike_as_often_as_armed_and_where_armed(api: ApiServer) -> None:
    armed = api.faults.add(faults.Answer(503, retry_after=7), path="*/ingresses", verbs={"list"}, times=2)
    assert request(api, "GET", "/api/v1/services")[0] == 200
    for _ in range(2):
        status, headers, body = exchange(api, "GET", INGRESSES)
        assert (status, headers["Retry-After"]) == (503, "7")
        assert json.loads(body)["reason"] == "ServiceUnavailable"
    assert request(api, "GET", INGRESSES)[0] == 200
    assert (armed.used, armed.left) == (2, 0)


@pytest.mark.parametrize(
    ("code", "reason"), [(500, "InternalError"), (429, "TooManyRequests"), (401, "Unauthorized")]
)
def test_error_answers_are_statuses(api: ApiServer, code: int, reason: str) -> None:
    api.faults.add(faults.Answer(code))
    status, answer = request(api, "GET", INGRESSES)
    assert (status, answer["code"], answer["reason"]) == (code, code, reason)


def test_an_endless_fault_lasts_until_it_is_removed(api: ApiServer) -> None:
    armed = api.faults.add(faults.Answer(500), times=None)
    assert [request(api, "GET", INGRESSES)[0] for _ in range(3)] == [500, 500, 500]
    api.faults.remove(armed)
    assert request(api, "GET", INGRESSES)[0] == 200
    api.faults.add(faults.Answer(500), times=None)
    api.faults.clear()
    assert request(api, "GET", INGRESSES)[0] == 200


def test_an_html_page_instead_of_json(api: ApiServer) -> None:
    api.faults.add(faults.html_page())
    status, headers, body = exchange(api, "GET", INGRESSES)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert body.startswith(b"<!DOCTYPE html>")


def test_no_answer_at_all(api: ApiServer) -> None:
    api.faults.add(faults.Disconnect())
    with pytest.raises(http.client.RemoteDisconnected):
        request(api, "GET", INGRESSES)
    api.faults.add(faults.Disconnect(reset=True))
    with pytest.raises(ConnectionResetError):
        request(api, "GET", INGRESSES)


def test_an_answer_cut_in_its_body(api: ApiServer) -> None:
    api.store.create(ingress("a"))
    api.faults.add(faults.CutBody(after=50))
    with pytest.raises(http.client.IncompleteRead) as caught:
        request(api, "GET", INGRESSES)
    assert len(caught.value.partial) == 50


def test_slow_answers(api: ApiServer) -> None:
    api.faults.add(faults.Delay(0.1), verbs={"list"})
    begun = time.monotonic()
    assert request(api, "GET", INGRESSES)[0] == 200
    assert time.monotonic() - begun >= 0.1


def test_an_answer_held_until_the_test_lets_it_go(api: ApiServer) -> None:
    hold = faults.Hold()
    api.faults.add(hold, path=INGRESSES, times=None)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(request, api, "GET", INGRESSES)
        hold.wait_until_held()
        assert not answer.done()
        hold.release()
        assert answer.result(timeout=5)[0] == 200


def test_a_server_that_closes_lets_held_requests_go() -> None:
    hold = faults.Hold()
    with ThreadPoolExecutor(1) as threads, ApiServer() as api:
        api.faults.add(hold)
        answer = threads.submit(request, api, "GET", INGRESSES)
        hold.wait_until_held()
        api.close()
        assert isinstance(answer.exception(timeout=5), http.client.RemoteDisconnected | ConnectionError)


def test_a_watch_event_cut_in_mid_line(api: ApiServer) -> None:
    api.faults.add(faults.CutLine(), path=INGRESSES)
    with raw_watch(api, f"{INGRESSES}?watch=1&resourceVersion={api.store.revision}") as connection:
        api.wait_for_watch("ingresses")
        api.store.create(ingress("a"))
        last = chunks(read_all(connection))[-1]
    assert last.startswith(b'{"type":"ADDED"')
    assert b"\n" not in last
    # Once was armed: the next stream has the whole line.
    with WatchLines(api, f"{INGRESSES}?resourceVersion=0") as watch:
        assert watch.seen(1) == [("ADDED", "a")]


def test_a_reset_in_mid_line(api: ApiServer) -> None:
    api.faults.add(faults.CutLine(reset=True))
    with WatchLines(api, f"{INGRESSES}?resourceVersion=0") as watch:
        api.store.create(ingress("a"))
        with pytest.raises(ConnectionResetError):
            watch.response.read()


def test_lines_split_over_chunks_all_arrive(api: ApiServer) -> None:
    api.faults.add(faults.SplitLines(size=7), times=None)
    api.store.create_many([ingress("a"), ingress("b")])
    with raw_watch(api, f"{INGRESSES}?watch=1&resourceVersion=0&timeoutSeconds=1") as connection:
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(65536)
    found = chunks(received)
    assert {len(chunk) for chunk in found[:-3]} <= set(range(1, 8))
    events = [json.loads(line) for line in b"".join(found).splitlines()]
    assert [event["object"]["metadata"]["name"] for event in events] == ["a", "b"]


def test_duplicate_and_reordered_events(api: ApiServer) -> None:
    with WatchLines(api, f"{INGRESSES}?resourceVersion={api.store.revision}") as watch:
        api.wait_for_watch("ingresses")
        api.faults.add(faults.Duplicate())
        api.store.create(ingress("a"))
        assert watch.seen(2) == [("ADDED", "a"), ("ADDED", "a")]
        api.faults.add(faults.Reorder(window=5))
        api.store.create_many([ingress("b"), ingress("c")])
        assert watch.seen(2) == [("ADDED", "c"), ("ADDED", "b")]
        # Events of one object never change places.
        api.faults.add(faults.Reorder(window=5))
        api.store.create(ingress("d"))
        api.store.delete("ingresses", "d", "default")
        assert watch.seen(2) == [("ADDED", "d"), ("DELETED", "d")]
        api.faults.add(faults.Reorder(window=0.01))
        api.store.create(ingress("e"))
        assert watch.seen(1) == [("ADDED", "e")]


def test_a_stream_that_falls_silent_stays_open(api: ApiServer) -> None:
    api.options.bookmark_interval = 0.02
    query = f"watch=1&resourceVersion={api.store.revision}&allowWatchBookmarks=true"
    with raw_watch(api, f"{INGRESSES}?{query}") as connection:
        api.wait_for_watch("ingresses")
        armed = api.faults.add(faults.Silence(), path=INGRESSES)
        # Bookmarks came fifty times a second, until they did not.
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            read_all(connection)
        assert armed.used == 1
        api.store.create(ingress("a"))
        with pytest.raises(TimeoutError):
            read_all(connection)
        assert len(api.traffic.watches("ingresses")) == 1
    api.traffic.wait_for_no_watch()


def test_an_error_event_ends_the_stream(api: ApiServer) -> None:
    api.faults.add(faults.ErrorLine(500, "InternalError", "etcd event received with no key"))
    with WatchLines(api, f"{INGRESSES}?resourceVersion=0") as watch:
        api.store.create(ingress("a"))
        event = watch.next()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 500)
        with pytest.raises(EOFError):
            watch.next()


def test_a_server_that_does_not_listen_refuses_and_comes_back_on_its_port(api: ApiServer) -> None:
    api.store.create(ingress("a"))
    with WatchLines(api, f"{INGRESSES}?resourceVersion=0") as watch:
        api.wait_for_watch("ingresses")
        port = api.port
        api.stop_listening()
        with pytest.raises(http.client.IncompleteRead):
            watch.response.read()
    with pytest.raises(ConnectionRefusedError):
        request(api, "GET", INGRESSES)
    # Nobody else can take the port meanwhile.
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    api.start_listening()
    assert api.port == port
    assert len(request(api, "GET", INGRESSES)[1]["items"]) == 1


def test_a_bug_of_the_server_is_raised_when_it_closes() -> None:
    api = ApiServer()
    api.start_listening()
    api.options.git_version = "nonsense"
    with pytest.raises(http.client.RemoteDisconnected):
        request(api, "GET", "/version")
    with pytest.raises(BaseExceptionGroup, match="simulated API server failed"):
        api.close()


def test_counters(api: ApiServer) -> None:
    request(api, "GET", f"{INGRESSES}?limit=5")
    request(api, "GET", INGRESSES)
    request(api, "GET", "/api/v1/nodes")
    assert api.traffic.counts() == {("list", INGRESSES): 2, ("list", "/api/v1/nodes"): 1}
    assert api.traffic.seen("list", "*/ingresses")[0].query == {"limit": "5"}
    # The server counts what it has sent: a client can have read it before.
    wait_until(lambda: api.traffic.bytes_sent > 300, "the bytes to be counted")
    api.traffic.wait_for_requests("list", "*/ingresses", 2)
    later = threading.Thread(target=request, args=(api, "GET", INGRESSES))
    later.start()
    api.traffic.wait_for_requests("list", "*/ingresses", 3)
    later.join()
    api.traffic.forget()
    assert api.traffic.seen() == []
    with pytest.raises(TimeoutError, match="1 x get"):
        api.traffic.wait_for_requests("get", "*", timeout=0.01)
