"""The main job of nodeagent, shown step by step in the testbed: `python -m tests.testbed.demo`.

Exits with 0 only when everything that the story shows was observed. Nothing of it stays on the machine.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from tests.endtoend.trying import NAMED
from tests.isolation import missing_rights
from tests.testbed import addresses
from tests.testbed.agent import RUN_DIRECTORY, Agent, Answer
from tests.testbed.errors import NotObservedError, WorldError
from tests.testbed.http import CurlResult
from tests.testbed.kube_proxy import KUBE_PROXY_KINDS, KubeProxyKind
from tests.testbed.namespaces import Host
from tests.testbed.node_state import NodeState, living_processes, read_state
from tests.testbed.registry import Image
from tests.testbed.telling import FAILED, Screen, Step, end_as_by_ctrl_c, play, tell
from tests.testbed.waiting import wait_until
from tests.testbed.world import Node, World

_CONFIG = Path(__file__).with_name("demo.yaml")
_WORLD = """\
client --- lb --+-- node1 -- pod1    lb: HAProxy as the cloud's load balancer, sends the PROXY header
                +-- node2 -- pod2    pods: nginx as the ingress controller, requires the header;
                                     a registry behind it
                                     nodes: containerd, and kube-proxy's rules"""
_PENDING = _AFFECTED = 2


@dataclass(frozen=True)
class Scene:
    """What the steps play with: the world, nodeagent on node1, an image, and node1 as it was."""

    world: World
    agent: Agent
    image: Image
    before: NodeState
    screen: Screen


def doctor(code: str, exit_code: int, told: str) -> Callable[[Scene], None]:
    """The doctor connects as the node does, and names what it has measured."""

    def play_it(scene: Scene) -> None:
        verdict = lambda answer: answer.stdout.partition("\n\n")[0]  # noqa: E731
        answer = _nodeagent(scene, "doctor", expected_code=exit_code, shown=verdict)
        if f"[{code}]" not in answer.stdout:
            raise NotObservedError(f"a doctor that finds {code}", answer.text)
        scene.screen.observed(f"the doctor {told}")

    return play_it


def plan_shows(scene: Scene) -> None:
    answer = _nodeagent(scene, "plan", expected_code=_PENDING)
    proof = f"verified: DNS answers {addresses.LOAD_BALANCER_IP}"
    for word in (str(addresses.LOAD_BALANCER_IP), addresses.SITE, addresses.REGISTRY, proof):
        if word not in answer.words:
            raise NotObservedError(f"a plan that tells of {word}", answer.text)
    _same(scene, "nodeagent plan changed nothing")


def apply_does(scene: Scene) -> None:
    _nodeagent(scene, "apply", expected_code=0)
    answer = _nodeagent(scene, "apply", expected_code=0)
    if "nothing to do" not in answer.stdout:
        raise NotObservedError("a second apply that says there is nothing to do", answer.text)
    scene.screen.observed("applied; the second time there is nothing to do")


def pull_works(scene: Scene) -> None:
    node = scene.world.node1
    scene.screen.command(node.name, f"ctr content fetch {scene.image.reference}")
    result = node.containers.pull(scene.image)
    if not result.ok:
        raise NotObservedError("the image pulled whole", result.reason, node.containers.process.log)
    node.containers.remove(scene.image)
    mib = scene.image.layer.size // 2**20
    scene.screen.observed(f"the layer of {mib} MiB arrived whole, sha256:{scene.image.layer.digest[:12]}")


def others_still_fail(scene: Scene) -> None:
    _cut(scene, scene.world.node2)
    _pull_fails(scene, scene.world.node2)


def cleanup_removes(scene: Scene) -> None:
    _nodeagent(scene, "cleanup", expected_code=0)
    left = living_processes(scene.world.node1, "haproxy")
    if left:
        raise NotObservedError("no HAProxy left on node1", "\n".join(left))
    if scene.world.node1.run(["test", "-e", RUN_DIRECTORY], check=False).returncode == 0:
        raise NotObservedError(f"no {RUN_DIRECTORY} left on node1", "it is there")
    scene.screen.observed(f"no process of nodeagent and no {RUN_DIRECTORY} is left")


def node_is_as_before(scene: Scene) -> None:
    _same(scene, "node1 is as before")
    _cut(scene, scene.world.node1)


STORY: tuple[Step[Scene], ...] = (
    Step("From outside, the site works", lambda scene: _served(scene, scene.world.client)),
    Step(
        "From node1 and its pod it does not: no PROXY header reaches the ingress controller",
        lambda scene: _cut(scene, scene.world.node1, scene.world.pod1),
    ),
    Step(
        "containerd on node1 can't pull from the registry behind the same load balancer",
        lambda scene: _pull_fails(scene, scene.world.node1),
    ),
    Step(
        "nodeagent doctor: what is wrong on node1",
        doctor("ShortCircuitedAndCut", _AFFECTED, "names the cause: kube-proxy's short circuit"),
    ),
    Step("nodeagent plan: what would change on node1, and why", plan_shows),
    Step("nodeagent apply: apply these changes", apply_does),
    Step(
        "Now node1 and its pod are served, and nginx sees their true addresses",
        lambda scene: _served(scene, scene.world.node1, scene.world.pod1),
    ),
    Step("containerd on node1 pulls", pull_works),
    Step(
        "nodeagent doctor: node1 is healthy",
        doctor("RemediedByDnat", 0, "has measured that connections arrive at the relay by DNAT"),
    ),
    Step("node2, without nodeagent, still fails", others_still_fail),
    Step("nodeagent cleanup: leave no trace", cleanup_removes),
    Step("node1 is as it was before", node_is_as_before),
)


def _served(scene: Scene, *hosts: Host) -> None:
    for host in hosts:
        address = scene.world.address(host)
        for url in NAMED:
            answer = _curl(scene, host, url)
            if not answer.ok or not answer.body.startswith(f"client={address} "):
                expected = f"200, and nginx naming the client {address}"
                raise NotObservedError(expected, _shown(answer), *_error_logs(scene))
        scene.screen.observed(f"{host.name} is served; nginx sees its true address {address}")


def _cut(scene: Scene, *hosts: Host) -> None:
    """kube-proxy takes them past the load balancer and its PROXY header."""
    for host in hosts:
        before = scene.world.broken_headers()
        for url in NAMED[:2]:
            answer = _curl(scene, host, url)
            if not answer.cut:
                expected = "the connection cut before any answer"
                raise NotObservedError(expected, _shown(answer), *_error_logs(scene))
        what = "nginx logging `broken header`"
        try:
            wait_until(lambda: len(scene.world.broken_headers()) > len(before), what)  # noqa: B023
        except WorldError as error:
            raise NotObservedError(what, str(error), *_error_logs(scene)) from error
        # A TLS greeting in a log is no pleasure to read: the plain request's line is shown if there is one.
        new = set(scene.world.broken_headers()) - set(before)
        line = next((line for line in sorted(new) if 'broken header: "GET' in line), min(new))
        # Time, level and process are before it, the rest of the request after it.
        excerpt = ascii(line[line.index("broken header") :])[1:-1]
        scene.screen.said(f"nginx: ... {excerpt[:100]} ...")
        scene.screen.observed(f"{host.name} gets nothing; nginx logs `broken header`")


def _pull_fails(scene: Scene, node: Node) -> None:
    scene.screen.command(node.name, f"ctr content fetch {scene.image.reference}")
    result = node.containers.pull(scene.image)
    if result.ok:
        raise NotObservedError("a pull that fails", "the image was pulled", node.containers.process.log)
    reason = result.reason.rstrip().splitlines()[-1] if result.reason.strip() else "(silence)"
    if "reset" not in reason and "EOF" not in reason:
        raise NotObservedError("a pull whose connection is cut", reason, node.containers.process.log)
    scene.screen.said(reason)
    scene.screen.observed(f"the pull on {node.name} fails")


def _nodeagent(
    scene: Scene,
    command: str,
    *,
    expected_code: int,
    shown: Callable[[Answer], str] = lambda answer: answer.text,
) -> Answer:
    scene.screen.command(scene.agent.host.name, f"nodeagent {command}")
    answer = scene.agent.run(command)
    scene.screen.said(shown(answer))
    if answer.exit_code != expected_code:
        raise NotObservedError(
            f"exit code {expected_code} of nodeagent {command}", f"exit code {answer.exit_code}, as above"
        )
    return answer


def _same(scene: Scene, what: str) -> None:
    differences = scene.before.differences(read_state(scene.world.node1))
    if differences:
        raise NotObservedError(what, "\n".join(differences))
    compared = ", ".join(field.name for field in fields(NodeState))
    scene.screen.observed(f"{what} (compared: {compared})")


def _curl(scene: Scene, host: Host, url: str) -> CurlResult:
    scene.screen.command(host.name, f"curl {url}")
    answer = host.curl(url)
    scene.screen.said(_shown(answer))
    return answer


def _shown(answer: CurlResult) -> str:
    return f"{answer.status} {answer.body}" if answer.status else answer.stderr


def _error_logs(scene: Scene) -> list[Path]:
    return [controller.error_log for controller in scene.world.ingress]


def main(args: Sequence[str] | None = None) -> int:
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
    screen.step("Create a testbed in network namespaces")
    with World(kube_proxy=kind) as world:
        image = world.push_image(32)
        for line in _WORLD.splitlines():
            screen.note(line)
        screen.observed(f"it is ready; kube-proxy's rules are those of mode {kind}")
        agent = Agent(world.node1, config=_CONFIG, forked=False)
        play(story, Scene(world, agent, image, read_state(world.node1), screen), screen)
    return 1 + len(story)


if __name__ == "__main__":
    end_as_by_ctrl_c()
    sys.exit(main())
