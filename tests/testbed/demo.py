"""The main job of nodeagent, shown step by step in the little world: `python -m tests.testbed.demo`.

Exits with 0 only when everything that the story tells was observed. Nothing of it stays on the machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

from tests.testbed.agent import Agent
from tests.testbed.demo_screen import Screen
from tests.testbed.demo_story import STORY, Scene
from tests.testbed.errors import NotObservedError, WorldError
from tests.testbed.kube_proxy import KUBE_PROXY_KINDS
from tests.testbed.node_state import read_state
from tests.testbed.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.testbed.demo_story import Step
    from tests.testbed.kube_proxy import KubeProxyKind

FAILED = 1
INTERRUPTED = 130
_IMAGE_MIB = 32


def main(args: Sequence[str] | None = None) -> int:
    """Show the demo.

    Args:
        args: The command line after the program's name; this process's own when not given.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.testbed.demo", description=__doc__)
    parser.add_argument(
        "--kube-proxy",
        choices=KUBE_PROXY_KINDS,
        default=KUBE_PROXY_KINDS[0],
        help="the shape of kube-proxy's rules on the nodes (default: %(default)s)",
    )
    kind: KubeProxyKind = parser.parse_args(args).kube_proxy
    if os.geteuid() != 0:
        print("The demo makes network namespaces: run it as root (sudo make demo).", file=sys.stderr)
        return FAILED
    screen = Screen(1 + len(STORY))
    try:
        play(STORY, kind, screen)
    except NotObservedError as error:
        screen.failure(error.expected, error.seen, error.logs)
    except WorldError as error:
        screen.failure("the testbed doing its part", str(error), "")
    except KeyboardInterrupt:
        screen.end(f"Interrupted after {screen.seconds:.1f} s; nothing of the demo is left.", good=False)
        return INTERRUPTED
    else:
        screen.end(f"All {1 + len(STORY)} steps were observed, in {screen.seconds:.1f} s.", good=True)
        return 0
    screen.end(f"Not all was observed: stopped after {screen.seconds:.1f} s; nothing is left.", good=False)
    return FAILED


def play(story: Sequence[Step], kind: KubeProxyKind, screen: Screen) -> None:
    """Bring the world up, play the story, and take the world down, whatever happens.

    Args:
        story: The steps.
        kind: The shape of kube-proxy's rules.
        screen: Where it is shown.

    Raises:
        NotObservedError: A step did not show what it must.
        WorldError: The world itself failed.
    """
    screen.step("Bringing up a little world in network namespaces")
    with World(kube_proxy=kind) as world:
        image = world.push_image(_IMAGE_MIB)
        for line in _WORLD.splitlines():
            screen.note(line)
        screen.observed(f"it stands; kube-proxy's rules are in {kind} shape")
        scene = Scene(world, Agent(world.node1), image, read_state(world.node1), screen)
        for step in story:
            screen.step(step.title)
            step.play(scene)


_WORLD = """\
client --- lb --+-- node1 -- pod1    lb: HAProxy as the cloud's load balancer, sends the PROXY line
                +-- node2 -- pod2    pods: nginx as the ingress controller, demands the PROXY line;
                                     a registry behind it
                                     nodes: containerd, and kube-proxy's rules"""


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As a Ctrl-C: the world is taken down on the way out.
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
