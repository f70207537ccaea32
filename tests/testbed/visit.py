"""The testbed to look around in, and to break: `python -m tests.testbed.visit` (docs/development.md).

It exists until its standard input ends (Ctrl-D) or it is interrupted.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.daemon.cluster_api import ClusterApi
from tests.testbed.errors import WorldError
from tests.testbed.kube_proxy import KUBE_PROXY_KINDS
from tests.testbed.telling import FAILED, INTERRUPTED, end_as_by_ctrl_c
from tests.testbed.world import MANIFESTS, NODEAGENT_CONFIG, World

_IMAGE_MIB = 8


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.testbed.visit", description=__doc__)
    parser.add_argument("--kube-proxy", choices=KUBE_PROXY_KINDS, default=KUBE_PROXY_KINDS[0])
    options = parser.parse_args(args)
    try:
        with World(kube_proxy=options.kube_proxy) as world, ClusterApi(world.lb, world.tmp) as api:
            print(_told(world, api.kubeconfig), flush=True)
            sys.stdin.read()
    except WorldError as error:
        print(error, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _told(world: World, kubeconfig: Path) -> str:
    image = world.push_image(_IMAGE_MIB)
    for node in world.nodes:
        node.containers.process.check_running()
    variables = [
        f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH",
        f"NODEAGENT_MANIFESTS={shlex.quote(str(MANIFESTS))}",
        f"NODEAGENT_CONFIG={shlex.quote(str(NODEAGENT_CONFIG))}",
    ]
    daemon = f"nodeagent run --node node1 --kubeconfig {shlex.quote(str(kubeconfig))} &"
    steps = {
        "curl https://site.example.test/": "fails, and so does the pull:",
        shlex.join(map(str, world.node1.containers.pull_command(image))): "",
        "nodeagent doctor": "says why",
        "nodeagent plan": "what would change on this node; changes nothing",
        "nodeagent apply": "now curl and the pull work",
        "nodeagent status": "each load balancer and hostname",
        daemon: "the daemon, with a simulated API server: repairs within a second",
        "nodeagent cleanup": "removes all of it",
    }
    lines = ["In another terminal, as root, once: with this, only the daemon needs options."]
    lines += [f"  export {' '.join(variables)}", "", "Then enter a machine of the testbed:"]
    lines += [f"  {host.name:7} {shlex.join(host.enter(['bash']))}" for host in world.hosts]
    lines += ["", "On node1, for example:"]
    lines += [f"  {step:32}  # {what}" if what else f"  {step}" for step, what in steps.items()]
    lines += ["", f"Logs: {world.logs}", "Ctrl-D ends the testbed."]
    return "\n".join(lines)


if __name__ == "__main__":
    end_as_by_ctrl_c()
    sys.exit(main())
