"""The little world to look around in, and to break: `python -m tests.testbed.visit` (docs/testbed.md).

It stands until its standard input ends (Ctrl-D) or it is interrupted.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING

from tests.testbed.errors import WorldError
from tests.testbed.kube_proxy import KUBE_PROXY_KINDS
from tests.testbed.telling import FAILED, INTERRUPTED, end_as_by_ctrl_c
from tests.testbed.world import MANIFESTS, NODEAGENT_CONFIG, World

if TYPE_CHECKING:
    from collections.abc import Sequence

_IMAGE_MIB = 8


def main(args: Sequence[str] | None = None) -> int:
    """Bring a world up, say how it is entered, and keep it.

    Args:
        args: The command line after the program's name; this process's own when not given.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.testbed.visit", description=__doc__)
    parser.add_argument("--kube-proxy", choices=KUBE_PROXY_KINDS, default=KUBE_PROXY_KINDS[0])
    options = parser.parse_args(args)
    if os.geteuid() != 0:
        print("The world is made of network namespaces: run it as root.", file=sys.stderr)
        return FAILED
    try:
        with World(kube_proxy=options.kube_proxy) as world:
            print(_told(world), flush=True)
            sys.stdin.read()
    except WorldError as error:
        print(error, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _told(world: World) -> str:
    agent = [
        sys.executable,
        "-m",
        "nodeagent",
        "apply",
        "--manifests",
        MANIFESTS,
        "--config",
        NODEAGENT_CONFIG,
    ]
    lines = ["Enter a machine of the world from another terminal, as root:"]
    lines += [f"  {host.name:7} {shlex.join(host.enter(['bash']))}" for host in world.hosts]
    lines += [
        "",
        f"Logs: {world.logs}",
        f"An image to pull: {world.push_image(_IMAGE_MIB).reference}",
        f"nodeagent on node1: {shlex.join(map(str, [*agent, '--node', 'node1']))}",
        "",
        "Ctrl-D ends the world.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    end_as_by_ctrl_c()
    sys.exit(main())
