"""Which Service comes first where two want the same: an address, a port, a relay address, a place."""

from collections.abc import Iterable

from nodeagent.config.options import Config
from nodeagent.model.objects import Service
from nodeagent.plan.ages import by_age


def by_precedence(services: Iterable[Service], config: Config) -> tuple[Service, ...]:
    """Pure: the Services that the administrator listed, then the oldest.

    A tenant can set neither: the creation time is the API server's, the list is in the configuration file.
    A Service in `loadBalancers.ignore` counts with its age, even if it is listed, too.
    """
    listed = listed_paths(config)
    return tuple(sorted(services, key=lambda service: (service.ref.path not in listed, by_age(service))))


def listed_paths(config: Config) -> frozenset[str]:
    """`namespace/name` of each Service that `loadBalancers.services` names and `ignore` does not."""
    ignored = {entry.path for entry in config.load_balancers.ignore}
    return frozenset(entry.path for entry in config.load_balancers.services) - ignored
