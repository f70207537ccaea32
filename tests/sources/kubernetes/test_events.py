from datetime import UTC, datetime, timedelta

from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes import errors
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.single_requests import post_event
from tests.apiserver import ApiServer, faults

REF = ObjectRef("Service", "ingress-nginx", "controller")
NOON = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def test_many_nodes_make_one_event_an_hour(api: ApiServer, connection: Connection) -> None:
    for node, minute in (("n1", 0), ("n2", 20), ("n3", 59)):
        now = NOON + timedelta(minutes=minute)
        assert post_event(connection, REF, "NameRefused", "x", node_name=node, now=now) is None
    assert len(api.store.all("events")) == 1
    assert post_event(connection, REF, "NameRefused", "x", now=NOON + timedelta(hours=1)) is None
    assert post_event(connection, REF, "NameRefused", "y", now=NOON) is None
    assert len(api.store.all("events")) == 3


def test_a_message_is_safe_for_a_terminal_and_as_long_as_an_event_may_be_as_is_the_name(
    api: ApiServer, connection: Connection
) -> None:
    message = "\x1b[31mred\n\u202e" + "\u00fc" * 1000
    longest = ObjectRef("Service", "web", "n" * 253)
    assert post_event(connection, longest, "NameRefused", message, uid="u-1") is None
    (event,) = api.store.all("events")
    assert len(event["metadata"]["name"]) == 253
    assert event["involvedObject"]["uid"] == "u-1"
    assert event["message"].startswith(r"\x1b[31mred\n\u202e" + "\u00fc")
    assert event["message"].endswith("...")
    assert 1021 < len(event["message"].encode()) <= 1024


def test_failures_are_returned(api: ApiServer, connection: Connection) -> None:
    api.faults.add(faults.Disconnect())
    assert isinstance(post_event(connection, REF, "NameRefused", "x"), errors.UnreachableError)
