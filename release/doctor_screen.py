"""Shows what `nodeagent doctor` says on a node of the testbed that is affected (as root)."""

import sys

from tests.testbed.agent import Agent
from tests.testbed.world import World

AFFECTED = 2


def main() -> int:
    """Print it; 0 if the doctor found the node affected."""
    with World(kube_proxy="nftables") as world:
        answer = Agent(world.node1, forked=False).run("doctor", env={"FORCE_COLOR": "1"})
    print(f"node1$ nodeagent doctor\n{answer.stdout}", end="")
    return 0 if answer.exit_code == AFFECTED else 1


if __name__ == "__main__":
    sys.exit(main())
