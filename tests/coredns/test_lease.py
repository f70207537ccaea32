"""Of several controllers one writes: hand-over, partition, and what a former leader may still do."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodeagent.coredns.lease import LeaderElector, LeaseTiming, NotLeaderError
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import UnreachableError
from tests.apiserver import ApiServer, faults
from tests.apiserver.resources import Object
from tests.clock import Clock

LEASE = ObjectRef("Lease", "nodeagent", "nodeagent-coredns")
TIMING = LeaseTiming(duration=15, renew=10, retry=2)
_PATH = f"*/leases/{LEASE.name}"

Making = Callable[[str], LeaderElector]
Pair = tuple[LeaderElector, LeaderElector]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def elector(connecting: Callable[[], Connection], clock: Clock) -> Making:
    return lambda name: LeaderElector(connecting(), LEASE, name, timing=TIMING, clock=clock)


@pytest.fixture
def pair(elector: Making) -> Pair:
    """The leader, and one on standby."""
    one, two = elector("one"), elector("two")
    one.try_once()
    two.try_once()
    return one, two


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread


def standing(api: ApiServer) -> Object:
    lease: Object = api.store.get("leases", LEASE.name, LEASE.namespace)
    return lease


def test_the_first_gets_it_and_others_are_on_standby(api: ApiServer, pair: Pair) -> None:
    one, two = pair
    assert one.is_writer()
    assert not two.is_writer()
    assert two.holder == "one"
    spec = standing(api)["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("one", 15, 0)


def test_a_killed_leader_is_followed_when_its_lease_is_over_and_no_sooner(
    api: ApiServer, pair: Pair, clock: Clock
) -> None:
    one, two = pair
    clock.pass_by(14.9)
    two.try_once()
    assert not two.is_writer()
    clock.pass_by(0.1)
    two.try_once()
    assert two.is_writer()
    assert not one.is_writer()
    assert standing(api)["spec"]["leaseTransitions"] == 1


def test_never_two_leaders_whatever_happens_to_the_first_one_s_connection(
    api: ApiServer, pair: Pair, clock: Clock
) -> None:
    """The lease can be renewed no more; the holder gives up before any other candidate may take it."""
    one, two = pair
    for _ in range(10):
        armed = api.faults.add(faults.Disconnect(), path=_PATH, verbs={"get"}, times=None)
        one.try_once()
        api.faults.remove(armed)
        assert isinstance(one.error, UnreachableError)
        two.try_once()
        assert not (one.is_writer() and two.is_writer())
        clock.pass_by(2)
    assert two.is_writer()
    assert not one.is_writer()


def test_a_partitioned_leader_that_comes_back_writes_nothing(
    api: ApiServer, pair: Pair, clock: Clock
) -> None:
    one, two = pair
    clock.pass_by(15)
    with pytest.raises(NotLeaderError):
        one.confirm()
    two.try_once()
    one.try_once()
    assert not one.is_writer()
    with pytest.raises(NotLeaderError):
        one.confirm()
    assert two.confirm() == pytest.approx(10)
    assert standing(api)["spec"]["holderIdentity"] == "two"


def test_a_lease_taken_by_force_ends_the_leader_before_its_next_write(
    api: ApiServer, elector: Making
) -> None:
    """An administrator edits it, say: the clock alone would not show it."""
    one = elector("one")
    one.try_once()
    taken = standing(api)
    taken["spec"]["holderIdentity"] = "somebody"
    api.store.update(taken)
    with pytest.raises(NotLeaderError, match="is held by somebody"):
        one.confirm()
    assert not one.is_writer()


def test_a_write_that_would_outlast_the_lease_is_not_begun(elector: Making, clock: Clock) -> None:
    one = elector("one")
    one.try_once()
    clock.pass_by(4)
    assert one.confirm() == pytest.approx(6)
    clock.pass_by(5.5)
    assert one.is_writer()
    with pytest.raises(NotLeaderError, match="about to expire"):
        one.confirm()


def test_a_slow_renewal_counts_from_its_beginning(
    api: ApiServer, elector: Making, clock: Clock, background: ThreadPoolExecutor
) -> None:
    one = elector("one")
    one.try_once()
    clock.pass_by(2)
    slow = faults.Hold()
    api.faults.add(slow, path=_PATH, verbs={"update"}, times=1)
    began = clock.now
    renewal = background.submit(one.try_once)
    slow.wait_until_held()
    clock.pass_by(1.5)
    slow.release()
    renewal.result(5)
    assert one.confirm() == pytest.approx(began + 10 - clock.now)


@pytest.mark.parametrize("expired", [True, False])
def test_of_two_that_take_or_make_the_lease_at_once_one_gets_it(
    api: ApiServer, elector: Making, clock: Clock, background: ThreadPoolExecutor, *, expired: bool
) -> None:
    path, verb = (_PATH, "update") if expired else ("*/leases", "create")
    one, two = elector("one"), elector("two")
    if expired:
        for each in (elector("gone"), one, two):
            each.try_once()
        clock.pass_by(15)
    slow = faults.Hold()
    api.faults.add(slow, path=path, verbs={verb}, times=1)
    first = background.submit(one.try_once)
    slow.wait_until_held()
    two.try_once()
    slow.release()
    first.result(5)
    assert [one.is_writer(), two.is_writer()] == [False, True]
    one.try_once()
    assert one.holder == "two"


def test_a_released_lease_is_taken_at_once(api: ApiServer, pair: Pair) -> None:
    one, two = pair
    one.release()
    assert not one.is_writer()
    assert standing(api)["spec"]["holderIdentity"] == ""
    two.try_once()
    assert two.is_writer()


def test_one_that_is_no_leader_releases_nothing(api: ApiServer, pair: Pair) -> None:
    pair[1].release()
    assert standing(api)["spec"]["holderIdentity"] == "one"


def test_a_held_lease_can_be_deleted_and_no_other(api: ApiServer, pair: Pair, clock: Clock) -> None:
    one, two = pair
    with pytest.raises(NotLeaderError):
        two.remove()
    clock.pass_by(15)
    with pytest.raises(NotLeaderError):
        one.remove()
    assert standing(api)["spec"]["holderIdentity"] == "one"
    two.try_once()
    two.remove()
    assert not two.is_writer()
    assert api.store.all("leases") == []
    one.try_once()
    assert one.is_writer()


def test_a_lease_that_is_taken_in_the_moment_of_its_deletion_stays(
    api: ApiServer, elector: Making, background: ThreadPoolExecutor
) -> None:
    one = elector("one")
    one.try_once()
    slow = faults.Hold()
    api.faults.add(slow, path=_PATH, verbs={"delete"}, times=1)
    removed = background.submit(one.remove)
    slow.wait_until_held()
    taken = standing(api)
    taken["spec"]["holderIdentity"] = "somebody"
    api.store.update(taken)
    slow.release()
    with pytest.raises(NotLeaderError, match="was taken meanwhile; it stays"):
        removed.result(5)
    assert standing(api)["spec"]["holderIdentity"] == "somebody"


def test_with_a_thread_the_role_is_reported(connecting: Callable[[], Connection]) -> None:
    told = threading.Event()
    timing = LeaseTiming(duration=1.0, renew=0.7, retry=0.1)
    one = LeaderElector(connecting(), LEASE, "one", told.set, timing)
    one.start()
    assert told.wait(5), "nothing was told within 5 s"
    assert one.is_writer()
    one.stop()
    assert not one.is_writer()


def test_without_rights_it_is_on_standby_and_reports_the_missing_rule(
    api: ApiServer, elector: Making
) -> None:
    api.access.allow_only([])
    one = elector("one")
    one.try_once()
    assert not one.is_writer()
    assert 'resources: ["leases"], verbs: ["get"]' in str(one.error)
