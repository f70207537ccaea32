"""Counts that are kept agree with counts from the beginning, whatever the passes decide."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.desired import Desired, NameDecision, Ruling, Verdict
from nodeagent.model.objects import ObjectRef
from nodeagent.runtime.decision_log import NameCounts, changed_names

_INGRESS = ObjectRef("Ingress", "shop", "web")
_CODES = {Verdict.SERVED: "Verified", Verdict.SKIPPED: "NotAskedYet", Verdict.REFUSED: "NotVerified"}

passes = st.lists(st.dictionaries(st.integers(0, 20), st.sampled_from(Verdict)), max_size=8)


@given(passes)
def test_they_are_right_after_each_pass(decided: list[dict[int, Verdict]]) -> None:
    """Also where hostnames come, go, and are decided otherwise."""
    counts = NameCounts()
    before = Desired()
    for verdicts in decided:
        names = tuple(
            NameDecision(
                f"n{number:02}.example.com", _INGRESS, None, Ruling(verdict, _CODES[verdict], "because")
            )
            for number, verdict in sorted(verdicts.items())
        )
        after = Desired(names=names)
        counts.update(*changed_names(after, before))
        before = after
        expected = Counter(verdicts.values())
        assert {verdict: counts.of(verdict) for verdict in Verdict} == {
            verdict: expected[verdict] for verdict in Verdict
        }
        assert counts.codes == {_CODES[verdict] for verdict in expected}
