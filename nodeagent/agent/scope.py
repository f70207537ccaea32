"""Which components of the node a pass has to look at. Pure."""

from collections.abc import Iterable

from nodeagent.components.component import COMPONENTS, ComponentName
from nodeagent.model.desired import Desired

_ALL = frozenset(COMPONENTS)

# A component's change can move what rests on it: addresses carry the relay, the relay what points at it.
_RESTS_ON_IT: dict[ComponentName, frozenset[ComponentName]] = {
    "addresses": _ALL,
    "relay": frozenset({"relay", "dnat", "hosts"}),
    "dnat": frozenset({"dnat"}),
    "hosts": frozenset({"hosts"}),
}


def changed_components(before: Desired | None, after: Desired) -> frozenset[ComponentName]:
    """The components for which `after` wants something else than `before`; all of them without a before."""
    if before is None:
        return _ALL
    compared: dict[ComponentName, bool] = {
        "addresses": before.addresses != after.addresses,
        "relay": before.listeners != after.listeners,
        "dnat": before.dnat != after.dnat,
        "hosts": before.hosts != after.hosts,
    }
    return frozenset(name for name, differs in compared.items() if differs)


def with_dependents(components: Iterable[ComponentName]) -> frozenset[ComponentName]:
    """The components and all that rest on them."""
    return frozenset(dependent for name in components for dependent in _RESTS_ON_IT[name])
