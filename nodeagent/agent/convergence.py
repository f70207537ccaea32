"""Makes the node as desired, in the order that never points anything at a relay that does not answer.

Adding: guard, address, relay, DNAT, hosts. Removing: the reverse. The guard is the DNAT backend's, too: it
keeps strangers from the relay, and so stands as long as anything may listen there. One applier's failure does
not stop the others, except where going on would break that order.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from nodeagent.agent.appliers import Appliers
from nodeagent.agent.parts import ALL_PARTS, Part
from nodeagent.agent.standing import ready_listeners
from nodeagent.appliers.addresses.state import AddressResult
from nodeagent.appliers.dnat.backend import FamilyUnavailableError
from nodeagent.appliers.dnat.change import DnatChange, DnatState
from nodeagent.appliers.hosts.change import HostsChange
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired
from nodeagent.plan.readiness import defer_until_ready


@dataclass(frozen=True, slots=True)
class Step:
    """Something that was done to the node: by which applier, and what, for a person."""

    part: Part
    text: str


@dataclass(slots=True)
class Convergence:
    """What was done, in order, and what failed, by part of the node.

    `desired` is the plan as far as a relay answered for it: what of it waits says so in its reasons.
    `answering` are the listeners that answered; `seconds` is what each part took. `hosts` is the change of
    the hosts file, made or found needless, and `transactions` how many the kernel took from the DNAT
    backend: by these a watcher tells our own doing from others'; `displacements` of these did no more than
    put ours before another program's rules again. `blocking` are the parts whose errors leave it open what
    still points at the relay; `dnat` is what is in the kernel, once it was read. `relay_notes` are those
    of the relay's last reading; None where it was not looked at.
    """

    desired: Desired
    answering: AbstractSet[Endpoint] = frozenset()
    steps: list[Step] = field(default_factory=list)
    errors: dict[Part, str] = field(default_factory=dict)
    seconds: dict[Part, float] = field(default_factory=dict)
    hosts: HostsChange | None = None
    transactions: int = 0
    displacements: int = 0
    blocking: set[Part] = field(default_factory=set)
    dnat: DnatState | None = None
    relay_notes: tuple[str, ...] | None = None


def converge(
    desired: Desired,
    appliers: Appliers,
    parts: AbstractSet[Part] = ALL_PARTS,
    answering: AbstractSet[Endpoint] | None = None,
) -> Convergence:
    """Brings the node to `desired`; idempotent: a second call finds nothing to do.

    Args:
        desired: The plan.
        appliers: Who changes the node.
        parts: Which parts of the node are looked at; the others are taken to stand as desired.
        answering: The listeners known to answer; None asks each by a TCP connect.

    Returns:
        What was done. What an applier could not do stands in its `errors`; nothing is raised for it.
    """
    done = Convergence(desired)
    wanted = _Run(done, appliers, parts)
    if "relay" in parts:
        wanted.run("dnat", _raise_guard)
    wanted.run("addresses", _grow_addresses)
    wanted.run("relay", _grow_relay)
    done.answering = ready_listeners(desired, appliers) if answering is None else answering
    done.desired = defer_until_ready(desired, done.answering)
    _tell_silence(done)
    wanted.run("dnat", _grow_dnat)
    wanted.run("hosts", _write_hosts)
    wanted.run("dnat", _shrink_dnat)
    if done.blocking & {"dnat", "hosts"}:
        # Something may still point at a listener that is to go: it stays until a pass gets through.
        return done
    wanted.run("relay", _shrink_relay)
    if "relay" not in done.errors:
        wanted.run("addresses", _shrink_addresses)
        wanted.run("dnat", _drop_guard)
    return done


def clean_up(appliers: Appliers) -> Convergence:
    """Removes every trace of nodeagent from the node: names first, addresses last. Idempotent.

    An applier that fails keeps back those after it, which it may still point at.
    """
    done = Convergence(Desired())
    everything = _Run(done, appliers, ALL_PARTS)
    everything.run("hosts", _write_hosts)
    everything.run("dnat", _shrink_dnat)
    if done.errors:
        done.errors["relay"] = "kept, with its addresses: what could not be cleaned up may still point there"
        return done
    everything.run("relay", _remove_relay)
    if not done.errors:
        everything.run("addresses", _remove_addresses)
    if not done.errors:
        everything.run("dnat", _drop_guard)
    return done


_Work = Callable[[Convergence, Appliers], Iterator[str]]


@dataclass(frozen=True, slots=True)
class _Run:
    """Runs the work on one part after the other and keeps account."""

    done: Convergence
    appliers: Appliers
    parts: AbstractSet[Part]

    def run(self, part: Part, work: _Work) -> None:
        # What failed a moment ago would fail again, and may have waited ten seconds for a lock.
        if part not in self.parts or (part == "dnat" and part in self.done.blocking):
            return
        errors = self.done.errors
        began = time.monotonic()
        try:
            for text in work(self.done, self.appliers):
                self.done.steps.append(Step(part, text))
        except ApplyError as error:
            if not isinstance(error, FamilyUnavailableError):
                self.done.blocking.add(part)
            earlier = errors.get(part)
            errors[part] = f"{earlier}\n{error}" if earlier and earlier != str(error) else str(error)
        finally:
            self.done.seconds[part] = self.done.seconds.get(part, 0.0) + time.monotonic() - began


def _tell_silence(done: Convergence) -> None:
    """A relay that does not answer is an error, and has a consequence that no applier knows of."""
    silent = sorted(
        {listener.bind for listener in done.desired.listeners} - done.answering, key=Endpoint.sort_key
    )
    if silent:
        told = f"HAProxy does not listen on {', '.join(map(str, silent))}: what would point there is withheld"
        earlier = done.errors.get("relay")
        done.errors["relay"] = f"{earlier}\n{told}" if earlier else told


def _grow_addresses(done: Convergence, appliers: Appliers) -> Iterator[str]:
    change = appliers.addresses.change(appliers.addresses.read(), done.desired.addresses)
    if not change.add and change.step == "keep" and not change.refused:
        return
    result = appliers.addresses.grow(change)
    homes = {standing.address: standing.interface for standing in appliers.addresses.read().ours}
    for added in change.add:
        if added.address in result.standing:
            yield f"added {added.address} on {homes.get(added.address, '?')} ({added.load_balancer})"
    _tell_failures(result, "; its load balancer is not served, the others are")


def _grow_relay(done: Convergence, appliers: Appliers) -> Iterator[str]:
    """All listeners that are desired, beside those that stand: what points at the latter is still there.

    A listener whose address could not be had is left out: HAProxy refuses the whole of a configuration
    when it can't bind a part of it.
    """
    standing = {address.address for address in appliers.addresses.read().ours}
    listeners = {
        listener.bind: listener
        for listener in (*appliers.relay.read().listeners, *done.desired.listeners)
        if listener.bind.address in standing
    }
    change = appliers.relay.change(listeners.values())
    done.relay_notes = change.notes
    taken = appliers.relay.apply(change)
    if change:
        yield str(change)
    _tell_taken(
        {bind: who for bind, who in taken.items() if bind in {one.bind for one in done.desired.listeners}}
    )


def _raise_guard(done: Convergence, appliers: Appliers) -> Iterator[str]:
    """Before anything listens that other hosts should not reach."""
    guard = replace(done.desired.dnat, redirects=(), pods=())
    if guard:
        state = _dnat_state(done, appliers)
        if state.superseded is not None and state.superseded[1].rules.redirects:
            # The other backend's guard is there, with redirects that hold until this one's take over.
            return
        yield from _grow(done, appliers, replace(done.desired, dnat=guard))


def _grow_dnat(done: Convergence, appliers: Appliers) -> Iterator[str]:
    yield from _grow(done, appliers, done.desired)


def _write_hosts(done: Convergence, appliers: Appliers) -> Iterator[str]:
    change = appliers.hosts.apply(appliers.hosts.change(done.desired.hosts))
    done.hosts = change
    if change:
        yield _hosts_summary(change)


def _hosts_summary(change: HostsChange) -> str:
    counts = (("added", change.added), ("removed", change.removed), ("moved", change.moved))
    told = ", ".join(f"{len(names)} name{'s' * (len(names) > 1)} {what}" for what, names in counts if names)
    return f"{change.path} written ({change.how}): {told or 'the block only, no name changed'}"


def _shrink_dnat(done: Convergence, appliers: Appliers) -> Iterator[str]:
    """Remove all that is not desired but a guard: what it guards is removed after this."""
    wanted, held = done.desired.dnat, _dnat_state(done, appliers).rules
    if not wanted.guarded:
        wanted = replace(wanted, guarded=held.guarded, admitted=held.admitted)
    yield from _shrink(done, appliers, replace(done.desired, dnat=wanted))


def _drop_guard(done: Convergence, appliers: Appliers) -> Iterator[str]:
    yield from _shrink(done, appliers, done.desired)


def _grow(done: Convergence, appliers: Appliers, desired: Desired) -> Iterator[str]:
    change = appliers.dnat.diff(_dnat_state(done, appliers), desired)
    if change.growing:
        yield from _apply(done, change.growing, lambda: appliers.dnat.grow(change))


def _shrink(done: Convergence, appliers: Appliers, desired: Desired) -> Iterator[str]:
    change = appliers.dnat.diff(_dnat_state(done, appliers), desired)
    if change:
        yield from _apply(done, change, lambda: appliers.dnat.shrink(change))


def _dnat_state(done: Convergence, appliers: Appliers) -> DnatState:
    """The state that the last step left; read where there was none."""
    if done.dnat is None:
        done.dnat = appliers.dnat.read()
    return done.dnat


def _apply(done: Convergence, change: DnatChange, work: Callable[[], DnatState]) -> Iterator[str]:
    try:
        done.dnat = work()
    except FamilyUnavailableError as error:
        done.dnat = error.state
        done.transactions += 1
        if error.applied:
            yield error.applied
        raise
    except ApplyError:
        done.dnat = None
        raise
    done.transactions += 1
    done.displacements += change.displaced
    yield str(change)


def _shrink_relay(done: Convergence, appliers: Appliers) -> Iterator[str]:
    standing = {address.address for address in appliers.addresses.read().ours}
    change = appliers.relay.change(
        listener for listener in done.desired.listeners if listener.bind.address in standing
    )
    done.relay_notes = change.notes
    taken = appliers.relay.apply(change)
    if change:
        yield str(change)
    _tell_taken(taken)


def _tell_taken(taken: Mapping[Endpoint, str]) -> None:
    """Between the plan and HAProxy's start another program took a port: the next plan knows."""
    if taken:
        lines = (
            f"{bind} is held by a process of {who}; the others are served" for bind, who in taken.items()
        )
        raise ApplyError("\n".join(lines))


def _shrink_addresses(done: Convergence, appliers: Appliers) -> Iterator[str]:
    change = appliers.addresses.change(appliers.addresses.read(), done.desired.addresses)
    if not change.remove:
        return
    result = appliers.addresses.shrink(change)
    for gone in change.remove:
        if gone.address not in result.failures:
            yield f"removed {gone.address} from {gone.interface}"
    _tell_failures(result)


def _remove_relay(_: Convergence, appliers: Appliers) -> Iterator[str]:
    change = appliers.relay.change(())
    appliers.relay.cleanup()
    if change:
        yield str(change)


def _remove_addresses(_: Convergence, appliers: Appliers) -> Iterator[str]:
    change = appliers.addresses.removal(appliers.addresses.read())
    result = appliers.addresses.shrink(change)
    if change:
        yield str(change)
    _tell_failures(result)


def _tell_failures(result: AddressResult, consequence: str = "") -> None:
    if result.failures:
        lines = (f"relay address {address}: {why}{consequence}" for address, why in result.failures.items())
        raise ApplyError("\n".join(lines))
