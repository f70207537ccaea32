"""Which object comes first if two want the same: an address, a port, a relay address, a hostname, a place.

The oldest does, so that a newer one never displaces another; of Services, first those that an administrator
listed.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from nodeagent.config.options import Config
from nodeagent.model.objects import ObjectRef, Service

Age = tuple[bool, float, str, str, str]
"""Sorts the oldest object first: whether its creation time is unknown, that time, then its name."""


class _Aged(Protocol):
    """What has an age and a name."""

    @property
    def ref(self) -> ObjectRef: ...
    @property
    def created(self) -> datetime | None: ...


def by_age(found: _Aged) -> Age:
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
