from datetime import UTC, datetime, timedelta

from nodeagent.model.objects import ObjectRef
from nodeagent.observe.event_recorder import PendingEvent, post_event
from nodeagent.sources.kubernetes import errors
from nodeagent.sources.kubernetes.connection import Connection
from tests.apiserver import ApiServer, faults

REF = ObjectRef("Service", "ingress-nginx", "controller")
NOON = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def test_many_nodes_make_one_event_an_hour(api: ApiServer, connection: Connection) -> None:
    for node, minute in (("n1", 0), ("n2", 20), ("n3", 59)):
        now = NOON + timedelta(minutes=minute)
        assert post_event(connection, PendingEvent(REF, "NameRefused", "x"), node, now) is None
    assert len(api.store.all("events")) == 1
    for message, now in (("x", NOON + timedelta(hours=1)), ("y", NOON)):
        assert post_event(connection, PendingEvent(REF, "NameRefused", message), now=now) is None
    assert len(api.store.all("events")) == 3


def test_a_message_is_safe_for_a_terminal_and_as_long_as_an_event_may_be_as_is_the_name(
    api: ApiServer, connection: Connection
) -> None:
    message = "\x1b[31mred\n\u202e" + "\u00fc" * 1000
    longest = ObjectRef("Service", "web", "n" * 253)
    assert post_event(connection, PendingEvent(longest, "NameRefused", message, "u-1")) is None
    (event,) = api.store.all("events")
    assert len(event["metadata"]["name"]) == 253
    assert event["involvedObject"]["uid"] == "u-1"
    assert event["message"].startswith(r"\x1b[31mred\n\u202e" + "\u00fc")
    assert event["message"].endswith("...")
    assert 1021 < len(event["message"].encode()) <= 1024


def test_failures_are_returned(api: ApiServer, connection: Connection) -> None:
    api.faults.add(faults.Disconnect())
    event = PendingEvent(REF, "NameRefused", "x")
    assert isinstance(post_event(connection, event), errors.UnreachableError)
