"""`python -m tests.acceptance`: the acceptance steps, on a real cluster.

Exits with 0 only when every step was observed.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from secrets import token_urlsafe

from tests.acceptance.place import PATIENCE, ClusterPlace, Said
from tests.endtoend.trying import NAMED
from tests.testbed.addresses import SITE, Address
from tests.testbed.errors import NotObservedError, WorldError
from tests.testbed.http import CurlResult
from tests.testbed.ingress import CHALLENGE, KEY_SUFFIX
from tests.testbed.telling import Screen, Step, end_as_by_ctrl_c, play, tell
from tests.testbed.waiting import wait_until

_LOOK = Path(__file__).with_name("look.sh").read_text("utf-8")


@dataclass(frozen=True)
class Remains:
    """The hosts file's digest, mode and owner; and everything that has nodeagent's mark, one line each."""

    hosts: str
    traces: str


def look(place: ClusterPlace, node: str) -> Remains:
    hosts, _, traces = place.on_node(node, ["sh", "-c", _LOOK]).done.stdout.partition("---\n")
    return Remains(hosts, traces)


URLS = NAMED[:2]
_CUT = "the connection cut for want of the PROXY line"
_LONGEST_SECONDS = 1800
_REQUESTS = Path(__file__).with_name("requests.sh").read_text("utf-8")
_FILE = "/run/nodeagent-acceptance"


@dataclass(frozen=True)
class Scene:
    """What the steps play with; `pause` is what each node waits between two requests during an upgrade."""

    place: ClusterPlace
    screen: Screen
    pause: float
    found: dict[str, Remains] = field(default_factory=dict)


def nothing_stands(scene: Scene) -> None:
    for node in scene.place.nodes:
        found = look(scene.place, node)
        if found.traces:
            raise NotObservedError(f"{node} without nodeagent", found.traces)
        scene.found[node] = found
    scene.screen.observed("no node bears a trace of nodeagent")


def all_are_cut(scene: Scene) -> None:
    for node in scene.place.nodes:
        for pod in (False, True):
            for url in URLS:
                _cut(scene, node, url, pod=pod)
            scene.screen.observed(f"{_who(node, pod=pod)} gets nothing: {_CUT}")


def pulls_fail(scene: Scene) -> None:
    for node in scene.place.nodes:
        pulled = scene.place.pull(node)
        if pulled.ok:
            raise NotObservedError("a pull that fails", f"{node} pulled {scene.place.image}")
        if "reset" not in pulled.reason and "EOF" not in pulled.reason:
            raise NotObservedError("a pull whose connection is cut", pulled.reason)
        scene.screen.said(pulled.reason)
        scene.screen.observed(f"{node} can't pull {scene.place.image}")


def install(scene: Scene) -> None:
    scene.place.install()
    scene.screen.observed(f"ready on {', '.join(scene.place.nodes)}")


def all_are_served(scene: Scene) -> None:
    for node in scene.place.nodes:
        for pod in (False, True):
            for url in URLS:
                for resolve in (None, scene.place.load_balancer):
                    _served(*scene.place.curl(node, url, pod=pod, resolve=resolve))
            scene.screen.observed(f"{_who(node, pod=pod)} is served, and known by its own address")


def pulls_succeed(scene: Scene) -> None:
    for node in scene.place.nodes:
        pulled = scene.place.pull(node)
        if not pulled.ok:
            raise NotObservedError(f"{scene.place.image} pulled on {node}", pulled.reason)
        scene.screen.observed(f"{node} pulled {scene.place.image}")


def self_check_succeeds(scene: Scene) -> None:
    for node in scene.place.nodes:
        token = token_urlsafe(16)
        answer, _ = scene.place.curl(node, f"http://{SITE}{CHALLENGE}{token}", pod=True)
        if not answer.ok or answer.body != token + KEY_SUFFIX:
            raise NotObservedError(f"the key {token}{KEY_SUFFIX}", str(answer))
        scene.screen.observed(f"the self check succeeds from a pod of {node}")


def upgrade(scene: Scene) -> None:
    with ExitStack() as stack:
        said = {node: stack.enter_context(_requests(scene, node)) for node in scene.place.nodes}
        scene.place.upgrade()
    for node, running in said.items():
        text = running.result().done.stdout
        answered = re.search(r"^answered: (\d+)$", text, re.MULTILINE)
        failures = re.findall(r"^failed: (.*)$", text, re.MULTILINE)
        if answered is None:
            raise WorldError(f"{node}: the requests ended early: {text}{running.result().done.stderr}")
        if failures or answered[1] == "0":
            raise NotObservedError(
                f"every request of {node} answered during the upgrade",
                f"{answered[1]} answered; {len(failures)} failed: {failures[:5]}",
            )
        scene.screen.observed(f"{node}: {answered[1]} requests during the upgrade, none failed")


@contextmanager
def _requests(scene: Scene, node: str) -> Iterator[Future[Said]]:
    """Have a node ask for the page again and again while the block runs; what it said is there afterwards."""
    numbers = (str(each) for each in (_LONGEST_SECONDS * PATIENCE, scene.pause, 10 * PATIENCE))
    command = ["sh", "-c", _REQUESTS, "sh", _FILE, URLS[1], *numbers]
    place = scene.place

    def begun() -> bool:
        return place.on_node(node, ["test", "-e", _FILE]).done.returncode == 0

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(place.on_node, node, command, seconds=_LONGEST_SECONDS + 60)
        try:
            wait_until(lambda: running.done() or begun(), f"requests from {node}", seconds=60 * PATIENCE)
            yield running
        finally:
            place.on_node(node, ["rm", "-f", _FILE])


def uninstall(scene: Scene) -> None:
    scene.place.uninstall()
    for node in scene.place.nodes:
        left = look(scene.place, node)
        if left != scene.found[node]:
            raise NotObservedError(f"{node} as it was: {scene.found[node]}", str(left))
    scene.screen.observed("every node is as it was: hosts file, relay addresses, rules")


STEPS = (
    Step("Nothing of nodeagent stands on any node", nothing_stands),
    Step("Before: nodes and their pods don't reach the site of their own cluster", all_are_cut),
    Step("Before: nodes can't pull from the registry behind the same ingress", pulls_fail),
    Step("Install", install),
    Step("After: nodes and pods are served, by name and by the load balancer's address", all_are_served),
    Step("After: nodes pull", pulls_succeed),
    Step("After: a self check like cert-manager's succeeds from pods", self_check_succeeds),
    Step("Upgrade, under requests", upgrade),
    Step("Upgraded: nodes and pods are served", all_are_served),
    Step("Uninstall", uninstall),
    Step("Uninstalled: the old trouble is back", all_are_cut),
)


def _served(answer: CurlResult, asker: Address) -> None:
    if not answer.ok or not answer.body.startswith(f"client={asker} "):
        raise NotObservedError(f"200, and the client known as {asker}", str(answer))


def _cut(scene: Scene, node: str, url: str, *, pod: bool) -> None:
    answer, _ = scene.place.curl(node, url, pod=pod)
    if not answer.cut:
        raise NotObservedError(f"{_who(node, pod=pod)}: {url}: {_CUT}", str(answer))


def _who(node: str, *, pod: bool) -> str:
    return f"a pod of {node}" if pod else node


def main(args: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(args)
    screen = Screen(len(STEPS))
    left = "what was installed is left as it stands: python -m tests.acceptance uninstalls it when it begins"
    return tell(lambda: _on_cluster(options, screen), screen, left)


def _on_cluster(options: argparse.Namespace, screen: Screen) -> int:
    place = ClusterPlace(options)
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
        "--pause", type=float, default=0.05, help="seconds between a node's requests in an upgrade"
    )
    return parser


if __name__ == "__main__":
    end_as_by_ctrl_c()
    sys.exit(main())
