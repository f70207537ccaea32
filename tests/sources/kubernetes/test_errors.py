import json

import pytest

from nodeagent.sources.kubernetes import errors
from nodeagent.sources.kubernetes.errors import ApiRequest, missing_rule, refusal
from tests.cases import cases_of

CASES = cases_of(__file__, "cases.yaml")
ASKED = ApiRequest("list", "/apis/networking.k8s.io/v1/ingresses", "10.96.0.1:443")


def status(**fields: object) -> bytes:
    return json.dumps({"kind": "Status", "status": "Failure", **fields}).encode()


@pytest.mark.parametrize(("code", "error"), CASES["statuses"].items())
@pytest.mark.parametrize("body", [status(message="the words"), b"<html>", b"", b"[]", b"null"])
def test_each_status_has_its_error_whatever_the_body(code: int, error: str, body: bytes) -> None:
    found = refusal(ASKED, code, body)
    assert type(found).__name__ == error
    assert "list /apis/networking.k8s.io/v1/ingresses at 10.96.0.1:443" in str(found)
    assert ("the words" in str(found)) == (b"words" in body and code != 401)


def test_a_servers_own_words_are_repeated_up_to_a_bound() -> None:
    assert str(refusal(ASKED, 500, status(message="#" * 1000))).count("#") == 300


def test_retry_after_comes_from_the_header_or_the_details() -> None:
    assert refusal(ASKED, 429, b"", "7").retry_after == 7
    assert refusal(ASKED, 503, status(details={"retryAfterSeconds": 3})).retry_after == 3
    assert refusal(ASKED, 503, b"", "Wed, 21 Oct 2026 07:28:00 GMT").retry_after is None


def test_a_version_from_the_servers_future_asks_for_a_new_list() -> None:
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    assert type(refusal(ASKED, 504, status(message="Timeout", details=details))) is errors.GoneError


def test_anonymous_is_a_matter_of_credentials_not_of_rights() -> None:
    words = 'ingresses is forbidden: User "system:anonymous" cannot list resource "ingresses"'
    assert type(refusal(ASKED, 403, status(message=words))) is errors.UnauthorizedError


@pytest.mark.parametrize(("asked", "role", "group", "resource", "verbs"), CASES["missing"])
def test_a_forbidden_request_names_the_rule_that_is_missing(
    asked: str, role: str, group: str, resource: str, verbs: str
) -> None:
    verb, path = asked.split()
    request = ApiRequest(verb, path, "x")
    rule = f'a {role}: {{apiGroups: ["{group}"], resources: ["{resource}"], verbs: [{verbs}]}}'
    assert missing_rule(request) == rule
    assert rule in str(refusal(request, 403, status(message="no")))
