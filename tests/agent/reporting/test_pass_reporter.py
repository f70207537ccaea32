"""The log has a line for what changed, and none for what DNS says otherwise to no effect."""

import logging

import pytest

from nodeagent.agent.convergence import NodePass
from nodeagent.agent.reporting.pass_reporter import changed_names, log_pass
from nodeagent.model.desired import Desired, NameDecision, Verdict
from nodeagent.model.objects import ObjectRef

_LB = ObjectRef("Service", "ingress", "controller")


def decided(verdict: Verdict, code: str, reason: str, gist: str = "") -> Desired:
    """A plan that decided so on one name."""
    ingress = ObjectRef("Ingress", "shop", "web")
    name = NameDecision("shop.example.test", ingress, _LB, verdict, code, reason, by_dns=True, gist=gist)
    return Desired(names=(name,))


REFUSED = decided(Verdict.REFUSED, "NotVerified", "DNS answers 198.51.100.4", "DNS answers otherwise")
UNASKED = decided(Verdict.SERVED, "KeptUnasked", "kept: not asked yet")
PROVEN = decided(Verdict.SERVED, "Verified", "verified: DNS answers 192.0.2.1")


def told(before: Desired | None, after: Desired, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a pass that went from one plan to the other logs."""
    done = NodePass(after)
    caplog.clear()
    with caplog.at_level(logging.INFO, "nodeagent"):
        log_pass(done, before, changed_names(after, before))
    return [record.getMessage() for record in caplog.records]


def test_a_decision_is_logged_when_it_is_new_or_changed(caplog: pytest.LogCaptureFixture) -> None:
    """And when there is nothing to decide any more."""
    assert told(None, REFUSED, caplog) == ["Hostname refused"]
    assert told(REFUSED, PROVEN, caplog) == ["Hostname served"]
    assert told(PROVEN, REFUSED, caplog) == ["Hostname refused"]
    assert told(PROVEN, Desired(), caplog) == ["Hostname removed"]


def test_other_addresses_of_another_server_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A CDN answers otherwise every minute."""
    rotated = decided(Verdict.REFUSED, "NotVerified", "DNS answers 198.51.100.5", "DNS answers otherwise")
    assert told(REFUSED, rotated, caplog) == []


def test_an_existing_line_that_dns_confirms_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """As each name is after the agent's start."""
    assert told(UNASKED, PROVEN, caplog) == []
    assert told(UNASKED, REFUSED, caplog) == ["Hostname refused"]
