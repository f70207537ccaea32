from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any

import yaml

from tests.endtoend.trying import agent_on, configure
from tests.testbed.addresses import LOAD_BALANCER_IP, LOAD_BALANCER_IPS, NAMES, POD1, REGISTRY
from tests.testbed.agent import Agent, Answer
from tests.testbed.services import ServiceRules
from tests.testbed.world import World

PORTS = {80: 9080, 443: 9443, 8443: 9843}
"""Where another controller listens in its pod, by the Service's port."""

# The first twelve bytes of a version 2 header, which HAProxy sees here as plain data.
_V2 = "0D0A0D0A000D0A515549540A"


@contextmanager
def controller_without_proxy(world: World, directory: Path) -> Iterator[None]:
    """An nginx that reads no PROXY header, in the first pod."""
    listen = "".join(
        f"listen {inner}{'' if port == 80 else ' ssl'};" for port, inner in sorted(PORTS.items())
    )
    file = directory / "plain-nginx.conf"
    template = Template(Path(__file__).with_name(file.name).read_text("ascii"))
    pair = {"certificate": world.certificates.server, "key": world.certificates.server_key}
    file.write_text(template.substitute(pair, directory=directory, listen=listen), encoding="ascii")
    with _in_first_pod(world, "nginx", "-c", file, "-e", "stderr"):
        yield


@contextmanager
def controller_of_version_1(world: World, directory: Path) -> Iterator[None]:
    """The ingress controller behind an HAProxy that lets no PROXY header of version 2 through."""
    lines = ["defaults", " mode tcp", " timeout connect 3s", " timeout client 20s", " timeout server 20s"]
    for port, inner in sorted(PORTS.items()):
        lines += [
            f"listen port{port}",
            f" bind {POD1}:{inner}",
            " tcp-request inspect-delay 3s",
            f" tcp-request content reject if {{ req.payload(0,12),hex -m str {_V2} }}",
            " tcp-request content accept if { req.len ge 12 }",
            f" server nginx {POD1}:{port}",
        ]
    file = directory / "version-1.cfg"
    file.write_text("\n".join(lines) + "\n", encoding="ascii")
    with _in_first_pod(world, "haproxy", "-db", "-f", file):
        yield


@contextmanager
def _in_first_pod(world: World, *command: str | Path) -> Iterator[None]:
    process = world.pod1.popen([*command], log=f"other-{command[0]}")
    try:
        for inner in PORTS.values():
            world.pod1.await_port(inner, process)
        yield
    finally:
        process.stop()


GOLDEN = Path(__file__).with_name("golden")
_BALANCER_NAME = "lb.example.test"


@dataclass(frozen=True)
class Scene:
    """Where states are made: a world, nodeagent on its first node, and a directory for what a state needs."""

    world: World
    agent: Agent
    directory: Path

    @contextmanager
    def remedied(self) -> Iterator[None]:
        """Nodeagent has been applied; afterwards it is removed."""
        answer = self.agent.apply()
        assert answer.exit_code == 0, answer
        try:
            yield
        finally:
            cleaned = self.agent.cleanup()
            assert cleaned.exit_code == 0, cleaned

    @contextmanager
    def rules(self, service: ServiceRules) -> Iterator[None]:
        """Both nodes' kube-proxies know the ingress controller's Service so."""
        for node in self.world.nodes:
            node.kube_proxy.add(service)
        try:
            yield
        finally:
            for node in self.world.nodes:
                node.kube_proxy.add(self.world.service)

    @contextmanager
    def published(self, *points: dict[str, str]) -> Iterator[None]:
        status = {"loadBalancer": {"ingress": list(points)}}
        with self.edited("service", status), self.edited("ingresses", status):
            yield

    @contextmanager
    def edited(self, name: str, status: dict[str, Any]) -> Iterator[None]:
        file = self.agent.manifests / f"{name}.yaml"
        before = file.read_text(encoding="utf-8")
        documents = [document | {"status": status} for document in yaml.safe_load_all(before)]
        file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(before, encoding="utf-8")

    @contextmanager
    def configured(self, **sections: dict[str, object]) -> Iterator[None]:
        before = self.agent.config.read_text(encoding="utf-8")
        configure(self.agent, **sections)
        try:
            yield
        finally:
            self.agent.config.write_text(before, encoding="utf-8")


@dataclass(frozen=True)
class State:
    """A state: how it is made, what every port's path is then, the exit code, words of the first line."""

    name: str
    make: Callable[[Scene], AbstractContextManager[None]]
    path: str
    exit_code: int
    words: str
    options: tuple[str, ...] = ()

    @property
    def golden(self) -> Path:
        return GOLDEN / f"{self.name}.txt"


def _not_short_circuited(scene: Scene) -> ServiceRules:
    return replace(scene.world.service, load_balancer_ips=())


def _served_elsewhere(scene: Scene) -> ServiceRules:
    usual = scene.world.service
    ports = tuple(replace(port, target_port=PORTS[port.port]) for port in usual.ports)
    return replace(usual, endpoints=(POD1,), ports=ports)


@contextmanager
def _all(*made: AbstractContextManager[None]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in made:
            stack.enter_context(one)
        yield


def _broken(_: Scene) -> AbstractContextManager[None]:
    return nullcontext()


def _remedied_by_hosts_lines(scene: Scene) -> AbstractContextManager[None]:
    return _all(scene.configured(dnat={"backend": "none"}), scene.remedied())


@contextmanager
def _remedied_by_hostname(scene: Scene) -> Iterator[None]:
    usual = dict.fromkeys(NAMES, LOAD_BALANCER_IPS)
    scene.world.dns.set_records(usual | {_BALANCER_NAME: LOAD_BALANCER_IPS})
    try:
        with scene.rules(_not_short_circuited(scene)), scene.published({"hostname": _BALANCER_NAME}):
            yield
    finally:
        scene.world.dns.set_records(usual)


def _ip_mode_ignored(scene: Scene) -> AbstractContextManager[None]:
    return scene.published({"ip": str(LOAD_BALANCER_IP), "ipMode": "Proxy"})


def _ip_mode_proxy(scene: Scene) -> AbstractContextManager[None]:
    return _all(scene.rules(_not_short_circuited(scene)), _ip_mode_ignored(scene))


@contextmanager
def _load_balancer_down(scene: Scene) -> Iterator[None]:
    balancer = scene.world.lb
    refusing = (
        "add table ip down; add chain ip down input { type filter hook input priority 0; }; "
        f"add rule ip down input ip daddr {LOAD_BALANCER_IP} meta l4proto tcp reject with tcp reset"
    )
    with _ip_mode_proxy(scene):
        balancer.run(["nft", refusing])
        try:
            yield
        finally:
            balancer.run(["nft", "delete table ip down"])


@contextmanager
def _relay_down(scene: Scene) -> Iterator[None]:
    with scene.remedied():
        scene.world.node1.run(["pkill", "-KILL", "-x", "haproxy"])
        yield


def _controller_down(scene: Scene) -> AbstractContextManager[None]:
    usual = scene.world.service
    nobody = tuple(replace(port, target_port=9) for port in usual.ports)
    return scene.rules(replace(usual, ports=nobody))


def _controller_without_proxy(scene: Scene) -> AbstractContextManager[None]:
    other = controller_without_proxy(scene.world, scene.directory)
    return _all(other, scene.rules(_served_elsewhere(scene)))


def _wrong_version(scene: Scene) -> AbstractContextManager[None]:
    service = scene.world.service
    sent = {"namespace": service.namespace, "name": service.name, "proxyProtocol": "v2"}
    return _all(
        controller_of_version_1(scene.world, scene.directory),
        scene.rules(_served_elsewhere(scene)),
        scene.configured(loadBalancers={"services": [sent]}),
        scene.remedied(),
    )


def _undetected(scene: Scene) -> AbstractContextManager[None]:
    return scene.configured(loadBalancers={"services": []})


@contextmanager
def _stale_hosts_line(scene: Scene) -> Iterator[None]:
    """The node's hosts file has another program's line."""
    node = scene.world.node1
    before = node.read_hosts()
    node.write_hosts(before + f"192.0.2.99 {REGISTRY}\n".encode())
    try:
        with scene.remedied():
            yield
    finally:
        node.write_hosts(before)


STATES = (
    State("broken", _broken, "ShortCircuitedAndCut", 2, "short-circuited by kube-proxy, and rejected"),
    State("remedied", Scene.remedied, "RemediedByDnat", 0, "is healthy: 1 load balancer is short-circuited"),
    State("hosts lines", _remedied_by_hosts_lines, "RemediedByHosts", 2, "pods: not served"),
    State("hostname", _remedied_by_hostname, "ThroughLoadBalancer", 0, "work without a fix"),
    State("ipMode", _ip_mode_proxy, "ThroughLoadBalancer", 0, "work without a fix"),
    State("ipMode ignored", _ip_mode_ignored, "ShortCircuitedAndCut", 2, "ipMode Proxy, yet short-circuited"),
    State(
        "load balancer down", _load_balancer_down, "LoadBalancerDown", 2, "the load balancer does not answer"
    ),
    State("relay down", _relay_down, "RelayDown", 2, "sends it to the relay, which does not serve it"),
    State("controller down", _controller_down, "ControllerDown", 2, "no pod is ready"),
    State("no PROXY", _controller_without_proxy, "WorksWithoutProxy", 0, "unknown: path"),
    State("wrong version", _wrong_version, "WrongVersion", 2, "does not accept the version"),
    State("undetected", _undetected, "Undetected", 2, "which nothing is known to send"),
    State("stale line", _stale_hosts_line, "RemediedByDnat", 2, "/etc/hosts:4: sends registry.example.test"),
    State("from-nowhere", _broken, "", 2, "is affected, judging by its objects alone", ("--from", "nowhere")),
)
SHOWN = [state for state in STATES if state.name in {"broken", "remedied", "from-nowhere"}]
"""Of these, golden/ has the whole text."""


def stage(world: World, directory: Path) -> Scene:
    return Scene(world, agent_on(world.node1, world.manifests, directory), directory)


def shown(state: State, answer: Answer) -> str:
    command = " ".join(["$ nodeagent doctor", *state.options])
    return f"{command}\n{answer.text}exit code {answer.exit_code}\n"
