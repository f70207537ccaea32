"""What the Gateway API's Routes ask for."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from nodeagent.model.objects import ObjectRef, Snapshot
from nodeagent.model.routes import Gateway, Route
from nodeagent.plan.claims.attachment import Attachment, Parents
from nodeagent.plan.claims.claim import Claim, Whereabouts
from nodeagent.plan.claims.intersection import common_hostnames, intersection
from nodeagent.plan.exclusion import exclusion
from nodeagent.plan.hostnames import canonical


def claims_of_routes(snapshot: Snapshot) -> Iterator[Claim]:
    """Yields a claim for each Route and Gateway through which names reach it, and for those that don't."""
    if not snapshot.routes:
        return
    parents = Parents(
        {(gateway.ref.namespace, gateway.ref.name): gateway for gateway in snapshot.gateways},
        {(found.group, found.ref.namespace, found.ref.name): found for found in snapshot.listener_sets},
        {namespace.name: namespace for namespace in snapshot.namespaces},
    )
    whereabouts = {gateway.ref: _whereabouts(gateway) for gateway in snapshot.gateways}
    for route in snapshot.routes:
        attachments = tuple(parents.attachments(route))
        hostnames = tuple(map(canonical, route.hostnames))
        reached: set[str] = set()
        for (gateway, excluded, by), names in _names_by_gateway(route, attachments, hostnames).items():
            reached.update(names)
            yield Claim(route.ref, route.created, tuple(names), whereabouts[gateway], excluded, by)
        yield from _left_over(route, parents, attachments, hostnames, reached)


def _names_by_gateway(
    route: Route, attachments: Iterable[Attachment], hostnames: Sequence[str]
) -> dict[tuple[ObjectRef, str | None, str], dict[str, None]]:
    """The names by which a Route is reached through each Gateway; who leaves them alone, and why."""
    found: dict[tuple[ObjectRef, str | None, str], dict[str, None]] = {}
    for attachment in attachments:
        listener = attachment.listener.hostname
        names = common_hostnames(canonical(listener) if listener else None, hostnames)
        if names:
            key = (attachment.gateway.ref, *_exclusion(route, attachment))
            found.setdefault(key, {}).update(dict.fromkeys(names))
    return found


def _left_over(
    route: Route,
    parents: Parents,
    attachments: Sequence[Attachment],
    hostnames: Iterable[str],
    reached: Collection[str],
) -> Iterator[Claim]:
    """Yields a claim for the hostnames by which no listener is reached, so that somebody is told why."""
    names = tuple(
        hostname
        for hostname in hostnames
        if hostname not in reached and not any(intersection(hostname, name) for name in reached)
    )
    reason = "no listener that it is attached to has this name" if attachments else parents.obstacle(route)
    if names and reason:
        yield Claim(route.ref, route.created, names, Whereabouts(unattached=reason))


def _exclusion(route: Route, attachment: Attachment) -> tuple[str | None, str]:
    """Why the Route is left alone on that listener, and whose namespace says so."""
    for owner in (route, attachment.listener_set, attachment.gateway):
        if owner is not None and owner.annotations and (reason := exclusion(owner.annotations)):
            return (reason if owner is route else f"{owner.ref}: {reason}", owner.ref.namespace)
    return None, ""


def _whereabouts(gateway: Gateway) -> Whereabouts:
    return Whereabouts(
        points=gateway.points,
        problems=gateway.problems,
        status=f"status.addresses of {gateway.ref}",
        gateway=gateway.ref,
    )
