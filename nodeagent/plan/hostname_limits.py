"""How many hostnames are taken on: in total, and of one namespace."""

from collections.abc import Iterable, Mapping

from nodeagent.config.options import LimitOptions

NamespaceAndName = tuple[str, str]


def beyond_limits(
    claimed: Iterable[NamespaceAndName], limits: LimitOptions
) -> Mapping[NamespaceAndName, tuple[str, str]]:
    """Return those of the hostnames that are not taken on, each with code and reason. Pure.

    Args:
        claimed: namespace and hostname of each claim, those that come first in order of precedence; one that
            is claimed twice counts once.
        limits: the options.
    """
    taken: set[str] = set()
    by_namespace: dict[str, set[str]] = {}
    refused: dict[NamespaceAndName, tuple[str, str]] = {}
    for namespace, name in claimed:
        own = by_namespace.setdefault(namespace, set())
        if name not in own and len(own) >= limits.hostnames_per_namespace:
            reason = (
                f"namespace {namespace} has {len(own)} hostnames that come first "
                "(limits.hostnamesPerNamespace): DNAT alone serves this one"
            )
            refused[namespace, name] = "TooManyHostnamesInNamespace", reason
        elif name not in taken and len(taken) >= limits.hostnames:
            reason = f"{len(taken)} hostnames come first (limits.hostnames): DNAT alone serves this one"
            refused[namespace, name] = "TooManyHostnames", reason
        else:
            own.add(name)
            taken.add(name)
    return refused
