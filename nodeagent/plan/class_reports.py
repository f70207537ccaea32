"""Which load balancers the objects of each class report: evidence for objects that report none."""

from nodeagent.plan.claims.claim import Claim
from nodeagent.plan.precedence import Age

Report = tuple[str, str | None, str]
"""The class and the controller of an object, and the load balancer that it reports."""


class ClassReports:
    """Which load balancers the objects of each class report.

    Attributes:
        learned: of each class, the load balancers that objects of it report, with the age of the oldest.
        serves: of each load balancer, the classes and controllers of what reports it, with that age.
    """

    def __init__(self) -> None:
        self.learned: dict[str, dict[str, Age]] = {}
        self.serves: dict[str, dict[tuple[str, str | None], Age]] = {}
        self._ages: dict[Report, dict[Age, int]] = {}
        self._oldest: dict[Report, Age] = {}
        self._changed = False

    def add(self, report: Report, claim: Claim) -> None:
        """One more object reports this."""
        ages = self._ages.setdefault(report, {})
        ages[claim.age] = ages.get(claim.age, 0) + 1
        if report not in self._oldest or claim.age < self._oldest[report]:
            self._oldest[report] = claim.age
            self._changed = True

    def remove(self, report: Report, claim: Claim) -> None:
        """One object less reports this."""
        ages = self._ages[report]
        ages[claim.age] -= 1
        if ages[claim.age]:
            return
        del ages[claim.age]
        if not ages:
            del self._ages[report], self._oldest[report]
            self._changed = True
        elif claim.age == self._oldest[report]:
            self._oldest[report] = min(ages)
            self._changed = True

    def learn(self) -> bool:
        """Work out the attributes if anything changed; return whether it did."""
        changed, self._changed = self._changed, False
        if changed:
            self.learned, self.serves = {}, {}
            for (ingress_class, controller, path), age in self._oldest.items():
                known = self.learned.setdefault(ingress_class, {})
                known[path] = min(age, known.get(path, age))
                self.serves.setdefault(path, {})[ingress_class, controller] = age
        return changed
