"""The actual state of DNAT, the step from there to the desired rules, and what a backend does. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, collapse_addresses, ip_network
from typing import Literal, Protocol

from nodeagent.components.component import Diff, Watch
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint, IPNetwork
from nodeagent.model.desired import NO_RULES, DnatRules, Redirect
from nodeagent.model.objects import ObjectRef

# Only in comments does a name from the cluster become part of a script. nft rejects one of more than 128
# bytes (NFTNL_UDATA_COMMENT_MAXLEN in libnftnl's udata.h); the longest Service has 63 + "/" + 63 = 127.
COMMENT_LIMIT = 128

# A quote, a backslash, a line end or a "$" would have a meaning in nft, which has no escapes inside quotes.
_UNSAFE = re.compile(r"[^A-Za-z0-9._/-]")


@dataclass(frozen=True, slots=True)
class DnatState:
    """The actual state of the kernel: `rules` has its elements, and no options.

    `damage` says, one phrase each, what else is not as nodeagent makes it; `displaced`: only by other
    programs' rules before nodeagent's. `leftover` is what is left of the other backend, by its name.
    """

    rules: DnatRules = NO_RULES
    present: bool = False
    damage: tuple[str, ...] = ()
    displaced: bool = False
    unreadable: str = ""
    leftover: "tuple[str, DnatState] | None" = None

    @property
    def notes(self) -> tuple[str, ...]:
        return (f"{self.unreadable}: taken for empty",) if self.unreadable else ()

    def compared(self, desired: DnatRules) -> "DnatState":  # noqa: ARG002 - for a state that was read
        """Return the state with its damage: what but its elements is not as rendered for `desired`."""
        return self


@dataclass(frozen=True, slots=True)
class DnatChange(Diff):
    """One step to the desired rules, in `parts` by backend: what the other one left is removed as well."""

    before: DnatState = field(default_factory=DnatState, repr=False)
    desired: DnatRules = field(default=NO_RULES, repr=False)
    added: DnatRules = NO_RULES
    removed: DnatRules = NO_RULES
    keep: bool = False
    parts: "tuple[tuple[DnatBackend, DnatChange], ...]" = field(default=(), repr=False)
    how: str = ""

    @property
    def text(self) -> str:
        return "".join(backend.script(part) for backend, part in self.parts if part.action != "none")

    @property
    def action(self) -> Literal["none", "create", "alter", "repair", "delete"]:
        """What is done: `alter` changes only entries, `repair` writes everything again."""
        if not self.desired:
            return "delete" if self.before.present else "none"
        if not self.before.present:
            return "create"
        if self.before.damage:
            return "repair"
        return "alter" if self.added != NO_RULES or self.removed != NO_RULES else "none"

    @property
    def displaced(self) -> bool:
        altered = self.added != NO_RULES or self.removed != NO_RULES
        return self.action == "repair" and self.before.displaced and not altered

    def __bool__(self) -> bool:
        return self.action != "none" or self.before.leftover is not None

    def __str__(self) -> str:
        lines = [f"! repair: {reason}" for reason in self.before.damage if self.action == "repair"]
        if self.action == "create":
            lines.append("+ nodeagent's tables and chains")
        lines += (*_lines("-", self.removed), *_lines("+", self.added))
        if self.action == "delete":
            lines.append("- nodeagent's tables and chains")
        if self.before.leftover:
            lines.append(f"- everything that the backend {self.before.leftover[0]} left")
        return "\n".join(lines)


def _lines(sign: str, rules: DnatRules) -> list[str]:
    seen = {ip_network(redirect.match.address) for redirect in rules.redirects}
    return [
        *(f"{sign} {rule.match} -> {rule.to} ({rule.load_balancer})" for rule in rules.redirects),
        *(f"{sign} pods {network}" for network in rules.pods),
        *(f"{sign} guard {network}" for network in rules.guarded),
        *(f"{sign} admitted to the relay {network}" for network in rules.admitted),
        *(f"{sign} let through to the relay {network}" for network in rules.balancers if network not in seen),
    ]


def normalised(rules: DnatRules) -> DnatRules:
    """Return `rules` complete, in order, without overlaps. Raises ApplyError for what no kernel accepts."""
    by_match: dict[Endpoint, Redirect] = {}
    for redirect in rules.redirects:
        _check(redirect)
        first = by_match.setdefault(redirect.match, redirect)
        if first.to != redirect.to:
            raise ApplyError(
                f"DNAT: {redirect.match} is to go to {first.to} for {first.load_balancer} "
                f"and to {redirect.to} for {redirect.load_balancer}; nothing was changed. "
                "Remove one of the two."
            )
    guarded = _collapsed(rules.guarded)
    redirected = {redirect.match.address.version for redirect in by_match.values()}
    watched = {network.version for network in guarded}
    return replace(
        rules,
        redirects=tuple(sorted(by_match.values(), key=lambda redirect: redirect.match.sort_key())),
        pods=tuple(network for network in _collapsed(rules.pods) if network.version in redirected),
        guarded=guarded,
        admitted=tuple(network for network in _collapsed(rules.admitted) if network.version in watched),
        balancers=_redirected(by_match.values(), guarded),
        users=rules.users if guarded else 0,
    )


def _redirected(redirects: Iterable[Redirect], guarded: tuple[IPNetwork, ...]) -> tuple[IPNetwork, ...]:
    """Return the addresses that the guard lets through, in its families."""
    watched = {network.version for network in guarded}
    addresses = (redirect.match.address for redirect in redirects)
    return _in_order(ip_network(address) for address in addresses if address.version in watched)


def difference(before: DnatState, desired: DnatRules, *, keep: bool = False) -> DnatChange:
    """Return the change from `before` to `desired`, in which comments count. Errors as in `normalised`.

    With `keep`, only what the other backend left is removed, and only once this one has redirects: until
    then, those hold, and the guard lets them through.
    """
    # Without a guard of its own, nothing desired says how the one that stays is made.
    stays = desired.leaving or (keep and not desired.guarded and bool(before.rules.guarded))
    if desired.leaving:
        desired = replace(desired, guarded=before.rules.guarded, admitted=before.rules.admitted)
    desired = normalised(desired)
    if keep:
        left = before.leftover
        desired = normalised(_grown(before.rules, desired))
        if left and not desired.redirects:
            before = replace(before, leftover=None)
            desired = replace(desired, balancers=_redirected(left[1].rules.redirects, desired.guarded))
    if before.present and desired and not stays:
        before = before.compared(desired)
    return DnatChange(before, desired, _beyond(desired, before.rules), _beyond(before.rules, desired), keep)


def _grown(before: DnatRules, desired: DnatRules) -> DnatRules:
    matches = {redirect.match for redirect in desired.redirects}
    others = (redirect for redirect in before.redirects if redirect.match not in matches)
    ranges = {name: (*networks, *before.ranges[name]) for name, networks in desired.ranges.items()}
    return with_elements(desired, (*desired.redirects, *others), ranges)


def with_elements(
    rules: DnatRules, redirects: Iterable[Redirect], ranges: Mapping[str, Iterable[IPNetwork]]
) -> DnatRules:
    """Return the rules with these elements, in order, in place of their own."""
    ordered = {name: _in_order(networks) for name, networks in ranges.items()}
    return replace(
        rules,
        redirects=tuple(sorted(redirects, key=lambda redirect: redirect.match.sort_key())),
        pods=ordered["pods"],
        guarded=ordered["guarded"],
        admitted=ordered["admitted"],
        balancers=ordered["balancers"],
    )


def _beyond(rules: DnatRules, others: DnatRules) -> DnatRules:
    """Return the elements of `rules` that are not in `others`."""
    known = {_meaning(redirect) for redirect in others.redirects}
    redirects = (redirect for redirect in rules.redirects if _meaning(redirect) not in known)
    ranges = {name: {*networks} - {*others.ranges[name]} for name, networks in rules.ranges.items()}
    return with_elements(NO_RULES, redirects, ranges)


def _meaning(redirect: Redirect) -> tuple[Endpoint, Endpoint, str]:
    return redirect.match, redirect.to, comment_of(redirect.load_balancer)


def _check(redirect: Redirect) -> None:
    match, to = redirect.match, redirect.to
    problem = ""
    if match.address.version != to.address.version:
        problem = "mixes IPv4 and IPv6"
    elif any(isinstance(end.address, IPv6Address) and end.address.scope_id for end in (match, to)):
        # A scope (fe80::1%eth0) is not part of a packet's address, and Python accepts any text there.
        problem = "has an address with a scope"
    if problem:
        raise ApplyError(
            f"DNAT: the entry {match} -> {to} of {redirect.load_balancer} {problem}; nothing was changed."
        )


@lru_cache(maxsize=32)
def _collapsed(networks: tuple[IPNetwork, ...]) -> tuple[IPNetwork, ...]:
    """Return ranges that neither touch nor overlap. A pass asks for the same ones ten times."""
    four = collapse_addresses(network for network in networks if isinstance(network, IPv4Network))
    six = collapse_addresses(network for network in networks if isinstance(network, IPv6Network))
    return (*four, *six)


def _in_order(networks: Iterable[IPNetwork]) -> tuple[IPNetwork, ...]:
    return tuple(
        sorted(set(networks), key=lambda cidr: (cidr.version, int(cidr.network_address), cidr.prefixlen))
    )


def comment_of(owner: ObjectRef) -> str:
    """Return `namespace/name` in 1 to 128 characters of `A-Z a-z 0-9 . _ / -`; any other becomes `_`."""
    return _UNSAFE.sub("_", owner.path)[:COMMENT_LIMIT] or "unnamed"


def owner_of(comment: str) -> ObjectRef:
    """Return the Service that a comment names."""
    namespace, _, name = comment.partition("/")
    return ObjectRef("Service", namespace, name) if namespace and name else ObjectRef("Service", "", comment)


class DnatBackend(Protocol):
    """One kernel machinery that translates destinations, by its name in the option `dnat.backend`."""

    @property
    def name(self) -> str: ...

    def read(self) -> DnatState:
        """Read the actual state; a missing permission is a state with `unreadable` set. Raises ApplyError."""

    def script(self, change: DnatChange) -> str:
        """Return a change as the backend runs it. Pure."""

    def run(self, change: DnatChange) -> str:
        """Apply the change, each table whole; return why a family can't be served here. Raises ApplyError."""

    def watch(self) -> Watch: ...
