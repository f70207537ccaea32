"""Who came first: the order in which conflicts are settled, so that a newcomer never displaces anybody."""

from nodeagent.model.objects import Ingress, Service


def by_age(found: Service | Ingress) -> tuple[bool, float, str, str]:
    """A key that sorts the oldest first; an object without a creation time counts as the newest."""
    created = found.created.timestamp() if found.created else 0.0
    return (found.created is None, created, found.ref.namespace, found.ref.name)
