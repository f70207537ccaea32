from dataclasses import replace

import pytest

from nodeagent.components.dnat.state import DnatBackend, difference
from nodeagent.model.desired import DnatRules
from nodeagent.model.objects import ObjectRef
from tests.components.dnat.world import (
    LB,
    NODE,
    RELAY,
    World,
    answers,
    apply,
    both_families,
    redirect,
)

FAMILIES = pytest.mark.parametrize("family", [4, 6])


@pytest.mark.parametrize("damage", [(), ("an occasion to write all rules anew",)])
def test_no_connection_slips_through_while_entries_change(
    world: World, backend: DnatBackend, damage: tuple[str, ...]
) -> None:
    """Connections made all the while, whichever generation of the table they meet, reach a relay."""
    apply(backend, both_families())
    with answers(world) as heard:
        for step in range(30):
            changed = redirect(LB[4], RELAY[4], ObjectRef("Service", "x", str(step)))
            state = replace(backend.read(), damage=damage)
            backend.run(difference(state, DnatRules((changed,))))
    assert len(heard) > 20
    assert set(heard) == {f"relay {NODE[4]}"}
