"""Whether the DaemonSet is being deleted: an agent that believes so removes everything from its node."""

import pytest

from nodeagent.errors import SourceError
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.single_requests import is_going
from tests.apiserver import ApiServer, faults

OWN = ObjectRef("DaemonSet", "nodeagent", "nodeagent")


def _create(api: ApiServer) -> None:
    metadata = {"name": OWN.name, "namespace": OWN.namespace, "finalizers": ["foregroundDeletion"]}
    api.store.create({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {}})


def test_it_is_going_when_it_was_deleted_or_is_being_deleted(api: ApiServer, connection: Connection) -> None:
    assert is_going(connection, OWN), "it does not exist"
    _create(api)
    assert not is_going(connection, OWN)
    api.store.delete("daemonsets", OWN.name, OWN.namespace)
    assert is_going(connection, OWN), "its last pods are ending"


@pytest.mark.parametrize(
    "answer",
    [
        faults.html_page(404),
        faults.Answer(404, body=b"404 page not found\n", content_type="text/plain; charset=utf-8"),
        faults.Answer(
            404,
            body=b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{},'
            b'"message":"the server could not find the requested resource","code":404}',
        ),
    ],
    ids=["proxy", "starting-server", "no-such-api"],
)
def test_another_404_says_nothing_about_it(
    api: ApiServer, connection: Connection, answer: faults.Answer
) -> None:
    _create(api)
    api.faults.add(answer)
    with pytest.raises(SourceError, match="404"):
        is_going(connection, OWN)
    assert not is_going(connection, OWN)
