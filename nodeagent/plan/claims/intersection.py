"""Which names a listener and a Route have in common.

The Gateway API's reference, HTTPRoute.spec.hostnames and Listener.hostname: a wildcard stands for one or
more labels, and of two names the more specific one is what both have in common.
"""

from collections.abc import Sequence

from nodeagent.plan.hostnames import is_wildcard


def intersection(one: str, other: str) -> str | None:
    """The more specific of two hostnames (canonical), when it stands for nothing the other does not."""
    if one == other or _covers(one, other):
        return other
    return one if _covers(other, one) else None


def common_hostnames(listener: str | None, route: Sequence[str]) -> tuple[str, ...]:
    """The names by which a Route is reached through a listener, in the Route's order.

    Args:
        listener: The listener's hostname (canonical); None: it takes all names.
        route: The Route's hostnames (canonical); empty: it takes whatever the listener takes.

    Returns:
        Nothing either where there is nothing in common or where neither names anything.
    """
    if listener is None:
        return tuple(dict.fromkeys(route))
    if not route:
        return (listener,)
    found = (intersection(listener, hostname) for hostname in route)
    return tuple(dict.fromkeys(name for name in found if name is not None))


def _covers(wide: str, narrow: str) -> bool:
    # `*.example.com` ends in `.example.com`, too: a wildcard below another one is covered by it.
    return is_wildcard(wide) and narrow.endswith(wide[1:])
