"""The main job of nodeagent, shown step by step in the testbed: `python -m tests.testbed.demo`.

Exits with 0 only when everything that the story shows was observed. Nothing of it stays on the machine.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.isolation import missing_rights
from tests.testbed.agent import Agent
from tests.testbed.demo_story import STORY, Scene
from tests.testbed.kube_proxy import KUBE_PROXY_KINDS, KubeProxyKind
from tests.testbed.node_state import read_state
from tests.testbed.telling import FAILED, Screen, Step, end_as_by_ctrl_c, play, tell
from tests.testbed.world import World

_IMAGE_MIB = 32
_CONFIG = Path(__file__).with_name("demo.yaml")


def main(args: Sequence[str] | None = None) -> int:
    """Show the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.testbed.demo", description=__doc__)
    parser.add_argument(
        "--kube-proxy",
        choices=KUBE_PROXY_KINDS,
        default=KUBE_PROXY_KINDS[0],
        help="the shape of kube-proxy's rules on the nodes (default: %(default)s)",
    )
    kind: KubeProxyKind = parser.parse_args(args).kube_proxy
    if why := missing_rights():
        print(f"No demo: {why}", file=sys.stderr)
        return FAILED
    screen = Screen(1 + len(STORY))
    return tell(lambda: perform(STORY, kind, screen), screen, "nothing of the demo is left")


def perform(story: Sequence[Step[Scene]], kind: KubeProxyKind, screen: Screen) -> int:
    """Bring the world up, play the story, and take the world down; returns how many steps there were."""
    screen.step("Create a testbed in network namespaces")
    with World(kube_proxy=kind) as world:
        image = world.push_image(_IMAGE_MIB)
        for line in _WORLD.splitlines():
            screen.note(line)
        screen.observed(f"it is ready; kube-proxy's rules are those of mode {kind}")
        agent = Agent(world.node1, config=_CONFIG, forked=False)
        play(story, Scene(world, agent, image, read_state(world.node1), screen), screen)
    return 1 + len(story)


_WORLD = """\
client --- lb --+-- node1 -- pod1    lb: HAProxy as the cloud's load balancer, sends the PROXY header
                +-- node2 -- pod2    pods: nginx as the ingress controller, requires the header;
                                     a registry behind it
                                     nodes: containerd, and kube-proxy's rules"""


if __name__ == "__main__":
    end_as_by_ctrl_c()
    sys.exit(main())
