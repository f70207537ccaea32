"""`nodeagent run` as a program on a node: started, asked over its own pages, signalled, read, removed."""

import json
import socket
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any, Self

from tests.agent.scraping import Scrape, read
from tests.daemon.cluster_api import ClusterApi
from tests.testbed.agent import Answer
from tests.testbed.errors import WorldError, log_tail
from tests.testbed.forked import PYTHON
from tests.testbed.inside import inside
from tests.testbed.namespaces import Host
from tests.testbed.node_state import living_processes
from tests.testbed.waiting import wait_until

_ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[2])}
_PROGRAM = (*PYTHON, "nodeagent")
_PORT = 9467
_SECONDS = 30.0
_MISTAKES = ("Reconcile pass failed", "failed unexpectedly")

_numbers = count(1)

Line = dict[str, Any]
"""One line of the log, as `--log-format json` writes it."""


class RunningAgent:
    """One `nodeagent run`, which begins to start with this object; `variables` lead it to the API server."""

    def __init__(self, node: Host, variables: Mapping[str, str], config: Path, *options: str) -> None:
        self.node = node
        self.config = config
        self._environment = _ENVIRONMENT | dict(variables)
        self._lines: list[Line] = []
        self._read = 0
        self._common: tuple[str | Path, ...] = ("--config", config, "--node", node.name)
        number = next(_numbers)
        # Of two agents, one would wait for the other's address.
        self._listen = (f"127.0.{number // 250}.{number % 250 + 2}", _PORT)
        listen = ("--telemetry-listen", f"{self._listen[0]}:{_PORT}")
        self.process = node.popen(
            [*_PROGRAM, "run", "--log-format", "json", *self._common, *listen, *options],
            log=f"nodeagent-{number}",
            env=self._environment,
            forked=True,
        )

    def lines(self, message: str = "", **fields: object) -> list[Line]:
        """List what it logged so far: lines whose message holds the words and that have these fields."""
        return [
            line
            for line in self._log()
            if message in line["message"] and all(line.get(key) == value for key, value in fields.items())
        ]

    def await_line(
        self, message: str, count: int = 1, *, seconds: float = _SECONDS, **fields: object
    ) -> Line:
        self.await_that(
            lambda: len(self.lines(message, **fields)) >= count, f"{message!r} {fields}", seconds=seconds
        )
        return self.lines(message, **fields)[-1]

    def page(self, path: str) -> tuple[int, str]:
        """Ask for a page; raises ConnectionRefusedError if it does not serve yet."""
        http = HTTPConnection("localhost")
        with inside(self.node):
            http.sock = socket.create_connection(self._listen, timeout=10)
        with closing(http):
            http.request("GET", path)
            answer = http.getresponse()
            return answer.status, answer.read().decode()

    def metrics(self) -> Scrape:
        return read(self.page("/metrics")[1].encode())

    def metric(self, name: str, **labels: str) -> float:
        value = self.metrics().value(name, **labels)
        if value is None:
            raise WorldError(f"no such series: {name} {labels}")
        return value

    def await_that(self, condition: Any, what: str, *, seconds: float = _SECONDS) -> None:  # noqa: ANN401 - see wait_until
        """Wait for a condition as long as the agent runs; an error ends with the end of its log."""
        self.process.await_that(condition, what, seconds=seconds)

    def await_page(self, path: str, status: int) -> str:
        """Wait until a page answers with a status; returns its text."""
        found: list[str] = []

        def answers() -> bool:
            try:
                answer, text = self.page(path)
            except ConnectionRefusedError:
                return False
            found.append(text)
            return answer == status

        self.await_that(answers, f"{path} answering {status}")
        return found[-1]

    def await_ready(self) -> None:
        """Wait until its first sync is applied."""
        self.await_page("/readyz", 200)

    def stop(self) -> int:
        return self.process.stop(SIGTERM)

    def kill(self) -> None:
        self.process.stop(SIGKILL)

    def plan(self, *options: str) -> Answer:
        """Run `nodeagent plan` against the same API: a fresh look by another process."""
        return self._run("plan", *options)

    def await_in_sync(self) -> None:
        """Wait until a fresh plan finds nothing to do; an error shows what it found."""
        try:
            wait_until(lambda: self.plan().exit_code == 0, "the node in sync", seconds=_SECONDS)
        except WorldError as error:
            raise WorldError(f"{error}\n{self.plan()}{log_tail(self.process.log)}") from error

    def cleanup(self) -> Answer:
        return self._run("cleanup")

    def _run(self, command: str, *options: str) -> Answer:
        common = self._common[:2] if command == "cleanup" else self._common
        arguments: list[str | Path] = [*_PROGRAM, command, *common, *options]
        done = self.node.run(arguments, timeout=60, check=False, env=self._environment, forked=True)
        return Answer(done.returncode, done.stdout, done.stderr)

    def _log(self) -> list[Line]:
        """Return all whole lines; only the new ones are read."""
        with self.process.log.open("rb") as log:
            log.seek(self._read)
            news, end, _ = log.read().rpartition(b"\n")
        try:
            self._lines += list(map(json.loads, news.splitlines()))
        except ValueError as error:
            raise WorldError(f"a line of the log is not JSON{log_tail(self.process.log, 80)}") from error
        self._read += len(news + end)
        return self._lines


class Agents:
    """Starts agents, and ends them: none of them may have made a mistake, nor anything be left of them."""

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
        agent = self.start(*options)
        agent.await_ready()
        return agent
