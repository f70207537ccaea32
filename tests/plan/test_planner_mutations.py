"""The histories find bugs: each of these, made on purpose in what the planner remembers, shows in some."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest

from nodeagent.model.facts import Facts, UserHostsLine
from nodeagent.model.objects import Snapshot
from nodeagent.plan import hostname_decisions
from nodeagent.plan import incremental as finding
from nodeagent.plan.claims import collecting
from nodeagent.plan.claims.claim import Claim, LoadBalancerHints
from nodeagent.plan.class_reports import ClassReports, Report
from nodeagent.plan.hostname_obstacles import HostnameLimits
from nodeagent.plan.incremental import SortedRows
from nodeagent.plan.load_balancer_lookup import LoadBalancerLookup
from nodeagent.plan.load_balancers import LoadBalancerPlan, LoadBalancerPlanner
from nodeagent.plan.planner import Planner, plan
from tests.plan.histories import History

_HISTORIES = 300
_MOMENTS = 12

Mutation = Callable[[pytest.MonkeyPatch], None]


def _deleted_keys_are_missed(patch: pytest.MonkeyPatch) -> None:
    def changed_keys(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
        return {key for key in after if before.get(key) is not after[key]}

    patch.setattr(hostname_decisions, "changed_keys", changed_keys)


def _the_node_s_names_are_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hostname_decisions, "_rules", lambda _: ())


def _user_lines_are_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    def changed_keys(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
        lines = any(isinstance(each, UserHostsLine) for each in (*before.values(), *after.values()))
        return set() if lines else finding.changed_keys(before, after)

    patch.setattr(hostname_decisions, "changed_keys", changed_keys)


def _who_moves_up_under_a_limit_is_missed(patch: pytest.MonkeyPatch) -> None:
    real = HostnameLimits.settle

    def settle(limits: HostnameLimits) -> set[str]:
        real(limits)
        return set()

    patch.setattr(HostnameLimits, "settle", settle)


def _new_evidence_is_missed(patch: pytest.MonkeyPatch) -> None:
    real = ClassReports.learn

    def learn(reports: ClassReports) -> bool:
        real(reports)
        return False

    patch.setattr(ClassReports, "learn", learn)


def _old_evidence_stays(patch: pytest.MonkeyPatch) -> None:
    def remove(_reports: ClassReports, _report: Report, _claim: Claim) -> None:
        pass

    patch.setattr(ClassReports, "remove", remove)


def _classes_and_gateways_are_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    real = collecting._Collection.update  # noqa: SLF001 - a bug in it

    def update(collection: object, owners: Sequence[object], _context: object, claims_of: object) -> object:
        return real(collection, owners, None, claims_of)  # type: ignore[arg-type, type-var]

    patch.setattr(collecting._Collection, "update", update)  # noqa: SLF001


def _changed_objects_are_taken_for_the_same(patch: pytest.MonkeyPatch) -> None:
    def difference(
        before: Sequence[object], after: Sequence[object], key: Callable[[object], object]
    ) -> object:
        removed, added = finding.difference(before, after, key)
        kept = {key(each) for each in removed} & {key(each) for each in added}
        return [each for each in removed if key(each) not in kept], [
            each for each in added if key(each) not in kept
        ]

    patch.setattr(collecting, "difference", difference)


def _facts_of_load_balancers_are_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    real = LoadBalancerPlanner.plan

    def plan_again(
        planner: LoadBalancerPlanner, snapshot: Snapshot, facts: Facts
    ) -> tuple[LoadBalancerPlan, ...]:
        planner.__dict__.setdefault("first", facts)
        return real(planner, snapshot, planner.__dict__["first"])

    patch.setattr(LoadBalancerPlanner, "plan", plan_again)


def _matches_outlive_their_load_balancer(patch: pytest.MonkeyPatch) -> None:
    real = LoadBalancerLookup._arrange  # noqa: SLF001 - a bug in it

    def arrange(
        lookup: LoadBalancerLookup,
        load_balancers: tuple[LoadBalancerPlan, ...],
        removed: Iterable[Claim],
        added: Iterable[Claim],
    ) -> list[Claim]:
        before = dict(getattr(lookup, "_found", {}))
        again = real(lookup, load_balancers, removed, added)
        lookup._found.update(before)  # noqa: SLF001
        return again

    patch.setattr(LoadBalancerLookup, "_arrange", arrange)


def _reports_outlive_their_load_balancer(patch: pytest.MonkeyPatch) -> None:
    real = LoadBalancerLookup._path_reported  # noqa: SLF001 - a bug in it

    def path_reported(lookup: LoadBalancerLookup, hints: LoadBalancerHints) -> str:
        first: dict[LoadBalancerHints, str] = lookup.__dict__.setdefault("first", {})
        return first.setdefault(hints, real(lookup, hints))

    patch.setattr(LoadBalancerLookup, "_path_reported", path_reported)


def _claims_without_a_hint_are_not_matched_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LoadBalancerLookup, "_evident", lambda _: [])


def _rows_without_successors_stay(patch: pytest.MonkeyPatch) -> None:
    real = SortedRows.update

    def update(rows: SortedRows[str, object], changed: Mapping[str, Sequence[object]]) -> object:
        return real(rows, {key: found for key, found in changed.items() if found})

    patch.setattr(SortedRows, "update", update)


def _questions_stay(patch: pytest.MonkeyPatch) -> None:
    real = hostname_decisions.HostnameDecisions._publish  # noqa: SLF001 - a bug in it

    def publish(
        decisions: object, touched: set[str], decided: object, lines: object, questions: set[str]
    ) -> None:
        real(decisions, set(questions), decided, lines, questions)  # type: ignore[arg-type]

    patch.setattr(hostname_decisions.HostnameDecisions, "_publish", publish)


_SHOWN_BY: Mapping[Mutation, int] = {
    _deleted_keys_are_missed: 4,
    _the_node_s_names_are_not_looked_at_again: 1,
    _user_lines_are_not_looked_at_again: 1,
    _who_moves_up_under_a_limit_is_missed: 74,
    _new_evidence_is_missed: 12,
    _old_evidence_stays: 12,
    _classes_and_gateways_are_not_looked_at_again: 3,
    _changed_objects_are_taken_for_the_same: 0,
    _facts_of_load_balancers_are_not_looked_at_again: 2,
    _matches_outlive_their_load_balancer: 2,
    _reports_outlive_their_load_balancer: 33,
    _claims_without_a_hint_are_not_matched_again: 4,
    _rows_without_successors_stay: 0,
    _questions_stay: 0,
}
"""The first history that shows each bug now: there the search begins, only to be quick."""


@pytest.mark.parametrize("mutation", _SHOWN_BY, ids=lambda mutation: mutation.__name__.strip("_"))
def test_a_bug_in_what_is_remembered_is_found(monkeypatch: pytest.MonkeyPatch, mutation: Mutation) -> None:
    """Warm differs from fresh in one of a few hundred histories, or does not get through."""
    mutation(monkeypatch)
    first = _SHOWN_BY[mutation]
    assert any(_differs(seed) for seed in range(first, first + _HISTORIES))


def _differs(seed: int) -> bool:
    history = History(seed)
    planner, config = None, None
    try:
        for moment in history.moments(_MOMENTS):
            if planner is None or moment.config is not config:
                planner, config = Planner(moment.config), moment.config
            warm = planner.plan(moment.snapshot, moment.facts)
            if warm != plan(moment.snapshot, moment.facts, moment.config):
                return True
            history.remember(warm)
    except (KeyError, ValueError):  # It lost track of what it remembers.
        return True
    return False
