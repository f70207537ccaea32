"""Which parts of the node a pass has to look at. Pure."""

from collections.abc import Iterable

from nodeagent.agent.parts import ALL_PARTS, Part
from nodeagent.model.desired import Desired

# A part's change can move what rests on it: addresses carry the relay, the relay what points at it.
_RESTS_ON_IT: dict[Part, frozenset[Part]] = {
    "addresses": ALL_PARTS,
    "relay": frozenset({"relay", "dnat", "hosts"}),
    "dnat": frozenset({"dnat"}),
    "hosts": frozenset({"hosts"}),
}


def changed_parts(before: Desired | None, after: Desired) -> frozenset[Part]:
    """The parts for which `after` wants something else than `before`; all of them without a before."""
    if before is None:
        return ALL_PARTS
    compared: dict[Part, bool] = {
        "addresses": before.addresses != after.addresses,
        "relay": before.listeners != after.listeners,
        "dnat": before.dnat != after.dnat,
        "hosts": before.hosts != after.hosts,
    }
    return frozenset(part for part, differs in compared.items() if differs)


def with_dependents(parts: Iterable[Part]) -> frozenset[Part]:
    """The parts and all that rest on them."""
    return frozenset(dependent for part in parts for dependent in _RESTS_ON_IT[part])
