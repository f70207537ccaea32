"""How many claims of one namespace are considered: the decision on each costs memory that all share.

A claimed hostname takes about 30 bytes of an object's text, and over a kilobyte of the agent's memory. So one
tenant with a few dozen objects could have every agent killed because it has no memory left, on all nodes at
once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from nodeagent.config.options import LimitOptions
from nodeagent.plan.claims.claim import Claim

_TIMES = 4
"""Several objects may claim a hostname: for example, one for each of its paths."""
_FEWEST = 10_000


class ClaimShares:
    """Leaves out the youngest claims of a namespace that claims far more than it can get.

    No other namespace's claims matter. A claim is left out as a whole.

    Args:
        limits: the options.
    """

    def __init__(self, limits: LimitOptions) -> None:
        self._most = max(_FEWEST, _TIMES * limits.hostnames_per_namespace)
        # By id, which no other claim has while the claim is held here.
        self._claims: dict[str, dict[int, Claim]] = {}
        self._counts: Counter[str] = Counter()
        self._left_out: dict[str, Mapping[int, Claim]] = {}

    def update(self, gone: list[Claim], new: list[Claim]) -> tuple[list[Claim], list[Claim]]:
        """Return the claims to forget, and those to consider now that were not considered before.

        Args:
            gone: claims of the previous update that are gone.
            new: the added ones.
        """
        touched = self._take_over(gone, new)
        before = {key: claim for each in touched for key, claim in self._left_out.pop(each, {}).items()}
        for namespace in touched:
            if left_out := self._beyond(namespace):
                self._left_out[namespace] = left_out
        after = {key: claim for each in touched for key, claim in self._left_out.get(each, {}).items()}
        if not (before or after):
            return gone, new
        ended, begun = set(map(id, gone)), set(map(id, new))
        forgotten = [claim for claim in gone if id(claim) not in before]
        considered = [claim for claim in new if id(claim) not in after]
        forgotten += [claim for key, claim in after.items() if key not in before and key not in begun]
        considered += [claim for key, claim in before.items() if key not in after and key not in ended]
        return forgotten, considered

    def problems(self) -> list[str]:
        """Return which namespaces have claims that are left out."""
        return [
            f"namespace {namespace}: {len(claims)} of its claims to hostnames are not considered: older ones "
            f"name {self._most} or more (limits.hostnamesPerNamespace)"
            for namespace, claims in self._left_out.items()
        ]

    def _take_over(self, gone: Iterable[Claim], new: Iterable[Claim]) -> set[str]:
        touched: set[str] = set()
        for claim in gone:
            namespace = claim.ref.namespace
            touched.add(namespace)
            self._counts[namespace] -= len(claim.names)
            del self._claims[namespace][id(claim)]
            if not self._claims[namespace]:
                del self._claims[namespace], self._counts[namespace]
        for claim in new:
            namespace = claim.ref.namespace
            touched.add(namespace)
            self._counts[namespace] += len(claim.names)
            self._claims.setdefault(namespace, {})[id(claim)] = claim
        return touched

    def _beyond(self, namespace: str) -> Mapping[int, Claim]:
        """Return the claims of the namespace before which the older ones use up its share."""
        if self._counts[namespace] <= self._most:
            return {}
        named = 0
        left_out: dict[int, Claim] = {}
        for claim in sorted(self._claims[namespace].values(), key=_by_age):
            if named >= self._most:
                left_out[id(claim)] = claim
            named += len(claim.names)
        return left_out


def _by_age(claim: Claim) -> tuple[object, ...]:
    # The rest distinguishes claims of one Route, and objects of two API groups that have the same name.
    return (*claim.age, claim.number, claim.hints.controller or "", claim.names)
