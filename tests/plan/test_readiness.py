"""Nothing is pointed at a relay that does not answer."""

from nodeagent.model.desired import Desired, Verdict
from nodeagent.plan.planner import defer_until_ready
from tests.plan.made_up import (
    desired,
    endpoint,
    hosts,
    ingress,
    of_name,
    of_service,
    point,
    redirects,
    relay_of,
    service,
)

NAME = "www.example.com"
PLANNED = desired(
    service(),
    service("green", ips=("192.0.2.2", "2001:db8::2"), ports=("443",)),
    ingress(NAME),
    ingress("green.example.com", name="green", points=(point("192.0.2.2"),)),
    ingress("*.example.com", "other.test", name="skipped"),
)


def answering(*silent: str) -> Desired:
    """The plan when all relays but these answer."""
    binds = {listener.bind for listener in PLANNED.listeners}
    return defer_until_ready(PLANNED, binds - {endpoint(text) for text in silent})


def test_a_silent_port_takes_its_redirects_and_every_name_of_its_relay_and_the_others_stay() -> None:
    """A name carries every port with it, and another program could have the one that is missing."""
    relay = relay_of(PLANNED)[4]
    planned = answering(f"{relay}:443")
    assert set(redirects(PLANNED)) - set(redirects(planned)) == {"192.0.2.1:443"}
    assert of_service(planned).remarks == (f"deferred: no relay answers at {relay}:443",)
    assert of_service(planned, "green") == of_service(PLANNED, "green")
    decision = of_name(planned, NAME)
    assert (decision.verdict, decision.code) == (Verdict.REFUSED, "RelayDown")
    assert decision.reason == "deferred: its relay does not answer"
    assert not [line for line in hosts(planned) if line.endswith(NAME)]
    assert of_name(planned, "green.example.com").verdict is Verdict.SERVED


def test_a_name_of_two_families_keeps_the_one_that_answers() -> None:
    """It is still served."""
    relays = relay_of(PLANNED, "green")
    planned = answering(f"[{relays[6]}]:443")
    assert f"{relays[4]} green.example.com" in hosts(planned)
    assert f"{relays[6]} green.example.com" not in hosts(planned)
    assert of_name(planned, "green.example.com").verdict is Verdict.SERVED


def test_names_that_were_skipped_keep_their_reasons() -> None:
    """They wait for no relay."""
    planned = defer_until_ready(PLANNED, frozenset())
    for name in ("*.example.com", "other.test"):
        assert of_name(planned, name) == of_name(PLANNED, name)
