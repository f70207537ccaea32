"""What differs between what stands and what is desired. PURE, the same for every backend."""

from collections.abc import Container, Iterable
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Address, IPv6Network, collapse_addresses

from nodeagent.appliers.dnat.comments import comment_of
from nodeagent.appliers.dnat.interface import Action, DnatChange, DnatDesired, DnatState, RedirectChange
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint, IPNetwork
from nodeagent.model.desired import Redirect

_PORTS = range(1, 65536)


def normalised(desired: DnatDesired) -> DnatDesired:
    """`desired` in one fixed order, checked, with ranges that neither touch nor overlap.

    An nftables interval set refuses ranges that overlap ("conflicting intervals specified"), and a /25
    beside its twin means the same as the /24.

    Raises:
        ApplyError: an entry that no kernel could hold, or two entries for one endpoint.
    """
    by_match: dict[Endpoint, Redirect] = {}
    for redirect in desired.redirects:
        _check(redirect)
        other = by_match.setdefault(redirect.match, redirect)
        if other.to != redirect.to:
            raise ApplyError(
                f"DNAT: {redirect.match} is to go to {other.to} for {other.load_balancer} "
                f"and to {redirect.to} for {redirect.load_balancer}; nothing was changed. "
                "Let one of the two go."
            )
    redirects = _ordered(by_match.values())
    guarded = _collapsed(desired.guarded)
    redirected = {redirect.match.address.version for redirect in redirects}
    watched = {network.version for network in guarded}
    return DnatDesired(
        redirects,
        tuple(network for network in _collapsed(desired.pod_cidrs) if network.version in redirected),
        guarded,
        tuple(network for network in _collapsed(desired.admitted) if network.version in watched),
    )


def difference(before: DnatState, desired: DnatDesired) -> DnatChange:
    """The change from `before` to `desired`.

    Args:
        before: What stands. If it could not be read, it counts as absent.
        desired: As `normalised` returns it.

    Returns:
        The change; false when both are the same. A missing, other or additional comment counts as a change.
    """
    wanted = {redirect.match: redirect for redirect in desired.redirects}
    standing = {redirect.match: redirect for redirect in before.redirects}
    common = [(standing[match], redirect) for match, redirect in wanted.items() if match in standing]
    change = DnatChange(
        added=tuple(redirect for match, redirect in wanted.items() if match not in standing),
        removed=_ordered(redirect for match, redirect in standing.items() if match not in wanted),
        changed=tuple(RedirectChange(old, new) for old, new in common if not _same(old, new)),
        pods_added=_networks(set(desired.pod_cidrs) - set(before.pod_cidrs)),
        pods_removed=_networks(set(before.pod_cidrs) - set(desired.pod_cidrs)),
        guarded_added=_networks(set(desired.guarded) - set(before.guarded)),
        guarded_removed=_networks(set(before.guarded) - set(desired.guarded)),
        admitted_added=_networks(set(desired.admitted) - set(before.admitted)),
        admitted_removed=_networks(set(before.admitted) - set(desired.admitted)),
    )
    altered = change != DnatChange()
    action = _action(before, desired, altered=altered)
    if action not in ("repair", "rebuild"):
        return replace(change, action=action)
    return replace(change, action=action, damage=before.damage, displaced=before.displaced and not altered)


def grown(before: DnatState, desired: DnatDesired) -> DnatDesired:
    """`desired` plus all that stands besides: the target of the half that only adds, changes and repairs."""
    matches = {redirect.match for redirect in desired.redirects}
    others = tuple(redirect for redirect in before.redirects if redirect.match not in matches)
    return DnatDesired(
        desired.redirects + others,
        _collapsed(desired.pod_cidrs + before.pod_cidrs),
        _collapsed(desired.guarded + before.guarded),
        _collapsed(desired.admitted + before.admitted),
    )


def kept(before: DnatState, desired: DnatDesired) -> DnatDesired:
    """What stands and is still desired: the target of the half that only removes.

    An entry that is to change goes on as it stands: changing it is the other half's part.
    """
    matches = {redirect.match for redirect in desired.redirects}
    return DnatDesired(
        tuple(redirect for redirect in before.redirects if redirect.match in matches),
        _common(before.pod_cidrs, desired.pod_cidrs),
        _common(before.guarded, desired.guarded),
        _common(before.admitted, desired.admitted),
    )


def without_families(change: DnatChange, families: Container[int]) -> DnatChange:
    """The part of a change that concerns the other family; false when there is none."""
    rest = replace(
        change,
        added=tuple(one for one in change.added if one.match.address.version not in families),
        removed=tuple(one for one in change.removed if one.match.address.version not in families),
        changed=tuple(one for one in change.changed if one.after.match.address.version not in families),
        pods_added=_of_others(change.pods_added, families),
        pods_removed=_of_others(change.pods_removed, families),
        guarded_added=_of_others(change.guarded_added, families),
        guarded_removed=_of_others(change.guarded_removed, families),
        admitted_added=_of_others(change.admitted_added, families),
        admitted_removed=_of_others(change.admitted_removed, families),
    )
    nothing = DnatChange(change.action, damage=change.damage, displaced=change.displaced)
    return DnatChange() if rest == nothing and not change.damage else rest


def _of_others(networks: Iterable[IPNetwork], families: Container[int]) -> tuple[IPNetwork, ...]:
    return tuple(network for network in networks if network.version not in families)


def _action(before: DnatState, desired: DnatDesired, *, altered: bool) -> Action:
    if not desired:
        return "delete" if before.present else "none"
    if not before.present:
        return "create"
    if before.damage:
        return "rebuild" if before.obstructed else "repair"
    return "alter" if altered else "none"


def _same(one: Redirect, other: Redirect) -> bool:
    return one.to == other.to and comment_of(one.load_balancer) == comment_of(other.load_balancer)


def _check(redirect: Redirect) -> None:
    match, to = redirect.match, redirect.to
    problem = ""
    if match.address.version != to.address.version:
        problem = "mixes IPv4 and IPv6"
    elif match.port not in _PORTS or to.port not in _PORTS:
        problem = "has a port outside of 1 to 65535"
    elif any(isinstance(end.address, IPv6Address) and end.address.scope_id for end in (match, to)):
        # A scope (fe80::1%eth0) is no part of a packet's address, and Python lets any text stand there.
        problem = "has an address with a scope"
    if problem:
        raise ApplyError(
            f"DNAT: the entry {match} -> {to} of {redirect.load_balancer} {problem}; nothing was changed."
        )


def _ordered(redirects: Iterable[Redirect]) -> tuple[Redirect, ...]:
    return tuple(sorted(redirects, key=lambda redirect: redirect.match.sort_key()))


def _collapsed(networks: Iterable[IPNetwork]) -> tuple[IPNetwork, ...]:
    given = tuple(networks)
    four = collapse_addresses(network for network in given if isinstance(network, IPv4Network))
    six = collapse_addresses(network for network in given if isinstance(network, IPv6Network))
    return (*four, *six)


def _networks(networks: Iterable[IPNetwork]) -> tuple[IPNetwork, ...]:
    return tuple(sorted(networks, key=lambda network: (network.version, int(network.network_address))))


def _common(standing: Iterable[IPNetwork], wanted: Iterable[IPNetwork]) -> tuple[IPNetwork, ...]:
    ranges = tuple(wanted)
    return tuple(network for network in standing if any(_within(network, other) for other in ranges))


def _within(network: IPNetwork, other: IPNetwork) -> bool:
    if isinstance(network, IPv4Network):
        return isinstance(other, IPv4Network) and network.subnet_of(other)
    return isinstance(other, IPv6Network) and network.subnet_of(other)
