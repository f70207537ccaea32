"""Few Events say what an administrator must know, in the same words on every node."""

from nodeagent.agent.announcements import announcements
from nodeagent.model.desired import Desired, LoadBalancerDecision, NameDecision, Verdict
from nodeagent.model.objects import ObjectRef

LB = ObjectRef("Service", "ingress", "controller")


def name(text: str, verdict: Verdict = Verdict.REFUSED, code: str = "NotProven") -> NameDecision:
    return NameDecision(text, ObjectRef("Ingress", "shop", "web"), LB, verdict, code, "not proven")


def test_a_refused_load_balancer_is_announced_with_its_reason() -> None:
    refused = LoadBalancerDecision(LB, Verdict.REFUSED, "RangeExhausted", "no relay address is left")
    (found,) = announcements(Desired(load_balancers=(refused,)))
    assert (found.service, found.code, found.message) == (LB, "RangeExhausted", "no relay address is left")


def test_what_is_served_or_skipped_is_not_announced() -> None:
    served = LoadBalancerDecision(LB, Verdict.SERVED, "Listed", "listed")
    skipped = LoadBalancerDecision(LB, Verdict.SKIPPED, "HostnameOnly", "by hostname")
    names = (name("a.example.test", Verdict.SERVED), name("b.example.test", Verdict.SKIPPED, "UserLine"))
    assert announcements(Desired(load_balancers=(served, skipped), names=names)) == ()


def test_many_refused_names_make_one_event_that_shows_some() -> None:
    (found,) = announcements(Desired(names=tuple(name(f"n{number}.example.test") for number in range(9))))
    assert found.code == "NameNotProven"
    assert "n0.example.test (Ingress shop/web): not proven" in found.message
    assert found.message.endswith("; and 4 more")


def test_a_name_without_a_known_load_balancer_has_nobody_to_be_announced_to() -> None:
    orphan = NameDecision("a.example.test", LB, None, Verdict.REFUSED, "BadName", "never written")
    assert announcements(Desired(names=(orphan,))) == ()
