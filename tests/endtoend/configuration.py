"""A test's own nodeagent on a node, and changes to the configuration that it reads."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.testbed.agent import RUN_DIRECTORY, Agent
from tests.testbed.namespaces import Host
from tests.testbed.node_state import living_processes, read_state
from tests.testbed.world import NODEAGENT_CONFIG


def configure(agent: Agent, **sections: Mapping[str, object]) -> None:
    """Set options, by section; the others stay as they are."""
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
