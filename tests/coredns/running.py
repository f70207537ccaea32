"""`nodeagent coredns run` as programs, against a live API."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 30.0
POLL_SECONDS = 0.1
"""Leases last seconds, and each look costs milliseconds."""
LEASE_SECONDS = 4


class Running:
    """One controller, which begins to start with this object.

    Args:
        name: Its identity.
        folder: For its log.
        kubeconfig: Where it finds the API server.
        config: Its configuration.
        options: More of its options.
    """

    def __init__(self, name: str, folder: Path, kubeconfig: Path, config: Path, *options: str) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        command = [
            *(sys.executable, "-m", "nodeagent", "coredns", "run", "--identity", name),
            *("--config", str(config), "--kubeconfig", str(kubeconfig), "--log-format", "json"),
            *("--lease-duration", str(LEASE_SECONDS), "--telemetry-listen", f"127.0.0.1:{self._port}"),
            *options,
        ]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, env={**os.environ, "KUBECONFIG": ""})

    def lines(self) -> Iterator[dict[str, Any]]:
        """The lines of its log so far."""
        for line in self._log.read_text("utf-8").splitlines():
            if line.startswith("{"):
                yield json.loads(line)

    def said(self, message: str) -> list[dict[str, Any]]:
        """The lines with this message."""
        return [line for line in self.lines() if line["message"] == message]

    def wait_for(self, message: str, count: int = 1) -> None:
        """Return when it has said something so often."""
        what = f"{self.name} to say {message!r}"
        wait_until(lambda: len(self.said(message)) >= count, what, seconds=SECONDS, every=POLL_SECONDS)

    def page(self, path: str) -> tuple[int, str]:
        """A page of its own: status and text."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def wait_until_ready(self) -> str:
        """Return when it is ready, with what its page says."""
        pages: list[str] = []

        def ready() -> bool:
            try:
                status, text = self.page("/readyz")
            except ConnectionRefusedError:
                return False  # it does not listen yet
            pages.append(text)
            return status == 200

        wait_until(ready, f"{self.name} to be ready", seconds=SECONDS)
        return pages[-1]

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Have it end; returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)
