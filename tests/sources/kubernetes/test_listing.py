import gzip
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.objects import Ingress, Unreadable
from nodeagent.sources.kubernetes import errors
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ApiRequest
from nodeagent.sources.kubernetes.listing import lines, read_event, read_list
from nodeagent.sources.kubernetes.reflector import Store
from nodeagent.sources.kubernetes.resources import Resource, watched
from tests.apiserver import ApiServer, faults, objects
from tests.cases import cases_of

INGRESSES = "/apis/networking.k8s.io/v1/ingresses"


def resource(name: str = "ingresses") -> Resource:
    return next(row for row in watched("n1") if row.name == name)


def test_compaction_between_pages_restarts_the_list(api: ApiServer, connection: Connection) -> None:
    api.store.create_many(objects.ingresses(1300))
    first, second = faults.Hold(), faults.Hold()
    api.faults.add(first, path=INGRESSES)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(read_list, connection, resource())
        first.wait_until_held()
        api.faults.add(second, path=INGRESSES)
        first.release()
        second.wait_until_held()
        api.store.delete("ingresses", "site-00000", "default")
        api.store.create(objects.ingress("late"))
        api.store.compact()
        second.release()
        listing = answer.result()
    assert len(listing.items) == 1300
    assert ("default", "late") in listing.items
    assert ("default", "site-00000") not in listing.items
    assert listing.version == api.store.revision


def test_a_list_that_expires_is_read_in_one_page(api: ApiServer, connection: Connection) -> None:
    api.store.create_many(objects.ingresses(1300))
    api.faults.add(faults.Answer(410), path=INGRESSES)
    assert len(read_list(connection, resource()).items) == 1300
    assert "limit" not in api.traffic.seen("list", INGRESSES)[-1].query


def test_a_list_that_never_comes_is_an_error(api: ApiServer, connection: Connection) -> None:
    api.faults.add(faults.Answer(410), path=INGRESSES, times=None)
    with pytest.raises(errors.GoneError):
        read_list(connection, resource())
    assert len(api.traffic.seen("list", INGRESSES)) <= 4


def test_services_are_narrowed_by_the_server(api: ApiServer, connection: Connection) -> None:
    api.store.create_many([objects.service("web"), objects.service("lb", kind="LoadBalancer")])
    assert list(read_list(connection, resource("services")).items) == [("default", "lb")]


@pytest.mark.parametrize("body", cases_of(__file__, "cases.yaml")["no_lists"])
def test_what_is_no_list_is_never_an_empty_one(api: ApiServer, connection: Connection, body: str) -> None:
    api.faults.add(faults.Answer(200, body=body.encode()), path=INGRESSES, times=None)
    with pytest.raises(errors.NotJsonError, match=r"not a list of objects|not JSON"):
        read_list(connection, resource())


def test_malformed_objects_hide_no_others(api: ApiServer, connection: Connection) -> None:
    broken = objects.ingress("broken")
    broken["spec"]["rules"] = "none"
    api.store.create_many([objects.ingress("good"), broken])
    items = read_list(connection, resource()).items
    assert isinstance(items["default", "good"], Ingress)
    told = items["default", "broken"]
    assert isinstance(told, Unreadable)
    assert told.where == "Ingress default/broken"
    assert "rules" in told.reason


def test_objects_without_name_or_version_are_reported(api: ApiServer, connection: Connection) -> None:
    items = b'{"metadata":{"resourceVersion":"5"}},{"metadata":{"name":"a","resourceVersion":"-1"}},7'
    body = b'{"kind":"IngressList","metadata":{"resourceVersion":"7"},"items":[%s]}' % items
    api.faults.add(faults.Answer(200, body=body), path=INGRESSES)
    found = read_list(connection, resource()).items.values()
    where = [value.where for value in found if isinstance(value, Unreadable)]
    assert where == ["Ingress without a usable name", "Ingress default/a", "Ingress without a usable name"]


def test_an_object_that_is_no_text_in_utf_8_hides_no_others(api: ApiServer, connection: Connection) -> None:
    head = b'{"metadata":{"name":"%s","resourceVersion":"5"},"spec":{"ingressClassName":"%s"}}'
    items = b",".join(head % pair for pair in [(b"odd", b"\xff"), (b"good", b"nginx")])
    body = b'{"kind":"IngressList","metadata":{"resourceVersion":"7"},"items":[%s]}' % items
    api.faults.add(faults.Answer(200, body=body), path=INGRESSES)
    values = [type(value) for value in read_list(connection, resource()).items.values()]
    assert values == [Unreadable, Ingress]


def test_large_objects_come_a_few_at_a_time(
    api: ApiServer, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list(objects.ingresses(60))
    for one in made:
        one["metadata"]["annotations"] = {"example.com/ballast": "x" * 200_000}
    api.store.create_many(made)
    # 12 MB in all, four times the bound that this test sets.
    monkeypatch.setattr("nodeagent.sources.kubernetes.connection.LARGEST_ANSWER", 3_000_000)
    listing = read_list(connection, resource())
    assert len(listing.items) == 60
    limits = [seen.query["limit"] for seen in api.traffic.seen("list", INGRESSES)]
    assert limits[:3] == ["500", "50", "5"]
    assert set(limits[2:]) == {"5"}


def test_an_answer_without_end_is_given_up(api: ApiServer, connection: Connection) -> None:
    body = b'{"kind":"IngressList","metadata":{"resourceVersion":"1"},"items":[' + b" " * 20_000_000
    api.faults.add(faults.Answer(200, body=body), path=INGRESSES, times=None)
    with pytest.raises(errors.TooLargeError, match=f"more than {16 << 20} bytes"):
        read_list(connection, resource())
    assert [seen.query["limit"] for seen in api.traffic.seen("list", INGRESSES)] == ["500", "50", "5", "1"]


@pytest.mark.parametrize("depth", [50, 990, 1010, 9_000])
@pytest.mark.parametrize("brackets", ["{}", "[]"])
def test_an_object_that_is_nested_without_end_hides_no_other(
    api: ApiServer, connection: Connection, depth: int, brackets: str
) -> None:
    """Neither in a list nor in a watch; what of it is read is read."""
    begin, end = ('{"a":', "}") if brackets == "{}" else ("[", "]")
    odd = r'"x":"]}\"",' + f'"z":{begin * depth}1{end * depth}'
    found = [
        f'{{"metadata":{{"name":"n{number}","namespace":"web","resourceVersion":"5"}},{odd},'
        f'"spec":{{"rules":[{{"host":"n{number}.example.com"}}]}}}}'
        for number in range(2)
    ]
    body = f'{{"kind":"IngressList","metadata":{{"resourceVersion":"7"}},"items":[{",".join(found)}]}}'
    api.faults.add(faults.Answer(200, body=body.encode()), path=INGRESSES)
    listing = read_list(connection, resource())
    assert [getattr(value, "hosts", None) for value in listing.items.values()] == [
        ("n0.example.com",),
        ("n1.example.com",),
    ]
    event = read_event(
        f'{{"type":"ADDED","object":{found[1]}}}'.encode(), resource(), ApiRequest("watch", INGRESSES, "")
    )
    assert event[2] == listing.items["web", "n1"]


PACKED = (("Content-Encoding", "gzip"),)


@pytest.mark.parametrize(
    "fault",
    [
        faults.Answer(200, body=b"\x1f\x8b\x08\x00 not marked as compressed"),
        faults.Answer(200, body=b'{"kind"', headers=PACKED),
        faults.Answer(200, body=gzip.compress(b'{"kind":"ServiceList"}')[:12], headers=PACKED),
        faults.Answer(200, body=gzip.compress(b'{"kind":"ServiceList"}')[:-1] + b"x", headers=PACKED),
        faults.Answer(200, body=b"", headers=PACKED),
        faults.Answer(500),
        faults.Answer(406),
        faults.html_page(502),
        faults.CutBody(after=30),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_whatever_becomes_of_a_compressed_list_it_is_read_uncompressed(
    api: ApiServer, connection: Connection, fault: faults.RequestFault, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="nodeagent")
    api.store.create_many(objects.ingresses(2))
    api.faults.add(fault, path=INGRESSES)
    assert len(read_list(connection, resource()).items) == 2
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_what_would_be_answered_alike_is_not_asked_twice(api: ApiServer, connection: Connection) -> None:
    for fault in [*(faults.Answer(code) for code in (400, 403, 404)), faults.Answer(429, retry_after=1)]:
        armed = api.faults.add(fault, path=INGRESSES, times=None)
        with pytest.raises(errors.ApiError):
            read_list(connection, resource())
        assert armed.used == 1
        api.faults.clear()


LINES = st.lists(st.binary(min_size=1, max_size=30).filter(lambda line: b"\n" not in line), max_size=8)


@given(whole=LINES, rest=st.sampled_from([b"", b"half"]), cuts=st.lists(st.integers(0, 200), max_size=20))
def test_lines_come_whole_however_the_bytes_are_cut(whole: list[bytes], rest: bytes, cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in whole) + rest
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    assert list(lines(data[start:end] for start, end in pairwise(edges))) == whole


def test_a_line_is_given_as_soon_as_its_end_is_there() -> None:
    pieces = iter([b'{"a":', b'1}\n{"b"', b":2}", b"\n\n"])
    found = lines(pieces)
    assert next(found) == b'{"a":1}'
    assert next(pieces) == b":2}"


def test_a_line_without_end_is_given_up() -> None:
    piece = b"x" * 65536
    found = lines([*[piece] * 64, b"\n", *[piece] * 64, b"x"])
    assert len(next(found)) == 64 * len(piece)
    with pytest.raises(errors.TooLargeError):
        next(found)


A, B = ("default", "a"), ("default", "b")


def test_what_is_shown_stays_the_same_until_a_value_changes() -> None:
    """A caller that remembers the result for the values need not compare them."""
    store = Store()
    store.replace({A: ["a"], B: ["b"]})
    before = store.values()
    assert before == (["a"], ["b"])
    assert not store.apply(A, ["a"])
    assert not store.apply(("default", "unused"), None)
    assert not store.replace({A: ["a"], B: ["b"]})
    assert store.values() is before
    assert store.apply(A, ["c"])
    assert store.values() == (["c"], ["b"])
    assert store.values()[1] is before[1]
    assert store.apply(B, None)
    assert store.values() == (["c"],)
    assert len(store) == 1
