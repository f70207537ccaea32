"""What a DaemonSet's manifests say to the agent by options of `run`: taking over, and where metrics are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.daemon.managed_state import names
from tests.testbed import addresses
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from tests.daemon.agents import Agents
    from tests.testbed.world import World

pytestmark = needs_root

_LEFT = f"10.96.0.77\t{addresses.SITE} # Added by hairpin-proxy\n".encode()


def test_lines_that_hairpin_proxy_left_stay_unless_they_are_to_be_taken_over(
    world: World, agents: Agents
) -> None:
    before = world.node1.read_hosts()
    world.node1.write_hosts(before + _LEFT)
    careful = agents.start_ready()
    assert _LEFT in world.node1.read_hosts()
    assert addresses.SITE not in names(world.node1)
    careful.stop()

    agents.start_ready("--adopt")
    assert _LEFT not in world.node1.read_hosts()
    assert addresses.SITE in names(world.node1)
    assert world.node1.read_hosts().startswith(before)


def test_metrics_are_shown_at_the_nodes_own_address_and_the_configuration_can_be_reloaded(
    world: World, agents: Agents
) -> None:
    """`telemetry.listen` in the file differs then, and is no reason to refuse the file."""
    agent = agents.start_ready()  # with --telemetry-listen, as each of these tests has it
    assert agent.page("/metrics")[0] == 200
    rewritten = agents.config.with_suffix(".new")
    rewritten.write_text(agents.config.read_text("utf-8") + "\n# a word more\n", "utf-8")
    rewritten.replace(agents.config)  # written in place, it would be empty for a moment
    agent.await_line("Reloaded the configuration")
    assert agent.metric("nodeagent_config_reloads_total", result="rejected") == 0
