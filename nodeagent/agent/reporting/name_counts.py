"""The number of hostnames by decision: counted once, then updated only where a pass decided otherwise."""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from nodeagent.model.desired import NameDecision, Verdict


class NameCounts:
    """Counts the decisions on hostnames by verdict and code."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Verdict, str]] = Counter()

    def update(self, removed: Iterable[NameDecision], added: Iterable[NameDecision]) -> None:
        """Take over the differences of a pass from the one before."""
        gone, new = (Counter((one.verdict, one.code) for one in each) for each in (removed, added))
        self._counts = self._counts - gone + new

    @property
    def codes(self) -> AbstractSet[str]:
        """The codes of all decisions."""
        return {code for _, code in self._counts}

    def of(self, verdict: Verdict) -> int:
        """Return how many hostnames have the verdict."""
        return sum(count for (each, _), count in self._counts.items() if each is verdict)
