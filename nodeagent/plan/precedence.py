"""Which object comes first if two want the same: an address, a port, a relay address, a hostname, a place.

The oldest does, so that a newer one never displaces another; of Services, first those that an administrator
listed. And which objects their owners exclude.
"""

from collections.abc import Iterable, Mapping

from nodeagent.config.options import Config
from nodeagent.errors import quoted
from nodeagent.model.objects import EXCLUDE, ControllerRoute, Gateway, Ingress, Route, Service

Age = tuple[bool, float, str, str, str]
"""Sorts the oldest object first: whether its creation time is unknown, that time, then its name."""


def by_age(found: Service | Ingress | Route | ControllerRoute | Gateway) -> Age:
    """Return a key that sorts the oldest first; an object without a creation time counts as the newest."""
    created = found.created.timestamp() if found.created else 0.0
    return (found.created is None, created, found.ref.namespace, found.ref.name, found.ref.kind)


def by_precedence(services: Iterable[Service], config: Config) -> tuple[Service, ...]:
    """Return the Services that the administrator listed, then the oldest. Pure.

    A tenant can set neither: the API server sets the creation time, the list is in the configuration file.
    A Service in `loadBalancers.ignore` counts by its age, even if it is listed, too.
    """
    listed = listed_paths(config)
    return tuple(sorted(services, key=lambda service: (service.ref.path not in listed, by_age(service))))


def listed_paths(config: Config) -> frozenset[str]:
    """`namespace/name` of each Service that `loadBalancers.services` names and `ignore` does not."""
    ignored = {entry.path for entry in config.load_balancers.ignore}
    return frozenset(entry.path for entry in config.load_balancers.services) - ignored


_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def parse_bool(text: str) -> bool:
    """Return the boolean that Go's strconv.ParseBool makes of `text`. Raises ValueError for what it rejects.

    So `yes`, `on`, `tRUE` and anything with a space around it are errors, not false.
    """
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"{quoted(text)} is neither true nor false")


def opt_out(annotations: Mapping[str, str]) -> str | None:
    """Why an object with these annotations is excluded; None if it is not.

    A value that is not a boolean excludes, too: its author wanted something other than the default.
    """
    value = annotations.get(EXCLUDE)
    if value is None:
        return None
    try:
        return f"annotation {EXCLUDE}: {value}" if parse_bool(value) else None
    except ValueError as error:
        return f"ignored, because its annotation {EXCLUDE} can't be parsed: {error}"
