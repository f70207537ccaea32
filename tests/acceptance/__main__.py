"""`python -m tests.acceptance`: the acceptance steps, on a real cluster.

Exits with 0 only when every step was observed.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from ipaddress import ip_address
from pathlib import Path

from tests.acceptance.cluster_place import ClusterPlace, Setting
from tests.acceptance.load import PAUSE_SECONDS
from tests.acceptance.steps import STEPS, Scene
from tests.testbed.telling import Screen, end_as_by_ctrl_c, play, tell


def main(args: Sequence[str] | None = None) -> int:
    """Play the steps where the command line says.

    Args:
        args: The command line after the program's name; this process's own when not given.

    Returns:
        The exit code.
    """
    options = _parser().parse_args(args)
    screen = Screen(len(STEPS))
    left = "what was installed is left as it stands: python -m tests.acceptance uninstalls it when it begins"
    return tell(lambda: _on_cluster(options, screen), screen, left)


def _on_cluster(options: argparse.Namespace, screen: Screen) -> int:
    place = ClusterPlace(Setting(**{one.name: getattr(options, one.name) for one in fields(Setting)}))
    if place.uninstall_what_stands():
        screen.note("nodeagent stood here already: it was uninstalled first")
    play(STEPS, Scene(place, screen, options.pause), screen)
    return len(STEPS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance", description=__doc__)
    places = parser.add_subparsers(dest="place", required=True)
    cluster = places.add_parser("cluster", help="docs/development.md says what it must offer")
    cluster.add_argument("--kubeconfig", type=Path, required=True)
    cluster.add_argument("--node-command", required=True, help="a command on {node}; docs/development.md")
    cluster.add_argument(
        "--node", dest="nodes", action="append", required=True, help="may be given several times"
    )
    cluster.add_argument("--load-balancer", type=ip_address, required=True, help="the Service's address")
    cluster.add_argument("--image", required=True, help="what is pulled: it must hold the program `true`")
    cluster.add_argument("--pod-image", required=True, help="for pods that ask: sh and curl, and the CA")
    cluster.add_argument("--kustomization", type=Path, required=True, help="what is installed")
    cluster.add_argument("--upgrade-to", default="", help="the agent's image then; the same if not given")
    cluster.add_argument(
        "--pause", type=float, default=PAUSE_SECONDS, help="seconds between a node's requests in an upgrade"
    )
    return parser


if __name__ == "__main__":
    end_as_by_ctrl_c()
    sys.exit(main())
