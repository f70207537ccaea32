"""A test's own nodeagent on a node, its configuration, and what pages return in every family of a world."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.testbed.addresses import ANOTHER, SITE, Family, bracketed
from tests.testbed.agent import RUN_DIRECTORY, Agent
from tests.testbed.http import CurlResult
from tests.testbed.namespaces import Host
from tests.testbed.node_state import living_processes, read_state
from tests.testbed.world import NODEAGENT_CONFIG, World

NAMED = (f"http://{SITE}/", f"https://{SITE}/", f"https://{SITE}:8443/")
"""Pages whose names an Ingress has."""


def configure(agent: Agent, **sections: Mapping[str, object]) -> None:
    document = yaml.safe_load(agent.config.read_text(encoding="utf-8"))
    for name, options in sections.items():
        document.setdefault(name, {}).update(options)
    agent.config.write_text(yaml.safe_dump(document), encoding="utf-8")


@contextmanager
def leaving_no_trace(agent: Agent) -> Iterator[Agent]:
    """Clean up afterwards: the node must be as it was before."""
    node = agent.host
    before = read_state(node)
    yield agent
    answer = agent.cleanup()
    assert answer.exit_code == 0, answer
    assert before.differences(read_state(node)) == []
    assert living_processes(node, "haproxy") == []
    assert node.run(["find", RUN_DIRECTORY], check=False).stdout == ""


def agent_on(
    node: Host, manifests: Path, directory: Path, *, forked: bool = True, **sections: Mapping[str, object]
) -> Agent:
    """Nodeagent for a node, with manifests and the testbed's configuration copied into a directory."""
    made = Agent(node, directory / "manifests", directory / "nodeagent.yaml", forked=forked)
    shutil.copytree(manifests, made.manifests)
    shutil.copy(NODEAGENT_CONFIG, made.config)
    configure(made, **sections)
    return made


def by_address(world: World) -> tuple[str, ...]:
    return tuple(f"http://{bracketed(address)}/" for address in world.service.load_balancer_ips)


def unnamed(world: World) -> tuple[str, ...]:
    """Pages that no Ingress names: they are covered by DNAT or not at all."""
    return (*by_address(world), f"https://{ANOTHER}:8443/")


def assert_served(world: World, host: Host, *urls: str) -> None:
    """Ask in each family: the page is served, and the ingress controller sees the host's own address."""
    for url, family, answer in _answers(world, host, urls):
        assert answer.ok, (url, family, answer)
        assert answer.body.startswith(f"client={world.address(host, family)} "), (url, family, answer)


def assert_cut(world: World, host: Host, *urls: str) -> None:
    """Ask in each family: the connection is rejected because the PROXY header is missing."""
    for url, family, answer in _answers(world, host, urls):
        assert answer.cut, (url, family, answer)


def _answers(world: World, host: Host, urls: tuple[str, ...]) -> Iterator[tuple[str, Family, CurlResult]]:
    asked = [(url, family) for url in urls for family in _families(world, url)]
    answers = host.curl_all([(url, [f"-{family}"]) for url, family in asked])
    for (url, family), answer in zip(asked, answers, strict=True):
        yield url, family, answer


def _families(world: World, url: str) -> tuple[Family, ...]:
    try:
        return (ip_address(urlsplit(url).hostname or "").version,)
    except ValueError:
        return world.families
