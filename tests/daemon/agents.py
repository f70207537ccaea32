"""Agents of one node: started by tests, and removed at the end with all that they made."""

from pathlib import Path
from typing import Self

from tests.daemon.cluster_api import ClusterApi
from tests.daemon.running_agent import RunningAgent
from tests.testbed.namespaces import Host
from tests.testbed.node_state import living_processes

_MISTAKES = ("Reconcile pass failed", "failed unexpectedly")


class Agents:
    """Starts agents, and ends them: none of them may have made a mistake, nor anything be left of them.

    Args:
        node: Where they run.
        api: Their API server, which they find as in a pod.
        config: Their configuration.
    """

    def __init__(self, node: Host, api: ClusterApi, config: Path) -> None:
        self.node = node
        self.config = config
        self._variables = api.give_account(node)
        self._started: list[RunningAgent] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self._started:
            agent.stop()
        if not self._started:
            return
        answer = self._started[-1].cleanup()
        assert answer.exit_code == 0, answer
        assert living_processes(self.node, "haproxy") == []
        for agent in self._started:
            for words in _MISTAKES:
                assert agent.lines(words) == []

    def start(self, *options: str, config: Path | None = None) -> RunningAgent:
        """Begin to start one; `await_ready` waits for it."""
        agent = RunningAgent(self.node, self._variables, config or self.config, *options)
        self._started.append(agent)
        return agent

    def start_ready(self, *options: str) -> RunningAgent:
        """Start one and wait until its first sync is applied."""
        agent = self.start(*options)
        agent.await_ready()
        return agent
