"""Who came first: the order in which conflicts are settled, so that a newcomer never displaces anybody."""

from datetime import datetime
from typing import Protocol

from nodeagent.model.objects import ObjectRef


class _Aged(Protocol):
    """What has an age and a name."""

    @property
    def ref(self) -> ObjectRef: ...
    @property
    def created(self) -> datetime | None: ...


def by_age(found: _Aged) -> tuple[bool, float, str, str, str]:
    """A key that sorts the oldest first; an object without a creation time counts as the newest."""
    created = found.created.timestamp() if found.created else 0.0
    return (found.created is None, created, found.ref.namespace, found.ref.name, found.ref.kind)
