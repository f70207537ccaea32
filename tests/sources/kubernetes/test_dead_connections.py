"""Connections whose other end is gone without a word: no FIN, no RST."""

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from kubernetes.utils.keepalive import tcp_keepalive_socket_options

from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes import credentials
from nodeagent.sources.kubernetes.connection import Connection, connect
from nodeagent.sources.kubernetes.errors import UnreachableError
from nodeagent.sources.kubernetes.listing import lines
from nodeagent.sources.kubernetes.single_requests import is_going
from tests.apiserver import ApiServer, objects
from tests.isolation import isolated
from tests.sources.kubernetes.test_connection import LIST, SERVICES, kinds
from tests.sources.kubernetes.test_kubeconfig import changed
from tests.sources.kubernetes.watching import connected

_OWN = ObjectRef("DaemonSet", "nodeagent", "nodeagent")


class Passage:
    """Forwards connections to a port; those that are open can be made silent."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._silent = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = [self._listener]
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def silence(self) -> None:
        """Let nothing more through on the connections that are open; new ones work."""
        self._silent.set()
        self._silent = threading.Event()

    def close(self) -> None:
        """End all connections."""
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for each in self._open:
            each.close()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=target, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._open += [near, far]
                self._start(self._copy, near, far, self._silent)
                self._start(self._copy, far, near, self._silent)

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket, silent: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not silent.is_set():
                    sink.sendall(data)
            if not silent.is_set():
                sink.shutdown(socket.SHUT_WR)


@contextmanager
def _passage(api: ApiServer, folder: Path) -> Iterator[tuple[Passage, Connection]]:
    with closing(Passage(api.port)) as passage:
        file = changed(
            api.write_kubeconfig(folder / "config"), {"server": f"http://127.0.0.1:{passage.port}"}
        )
        with connect(file) as connection:
            yield passage, connection


def test_an_ending_agent_does_not_ask_over_a_kept_connection(api: ApiServer, tmp_path: Path) -> None:
    """Otherwise its rules and hosts lines would stay for ever, after an uninstall that reports success."""
    with _passage(api, tmp_path) as (passage, connection):
        assert kinds(connection) == LIST
        passage.silence()
        assert is_going(connection, _OWN)


def test_a_watch_does_not_begin_on_a_kept_connection(api: ApiServer, tmp_path: Path) -> None:
    with _passage(api, tmp_path) as (passage, connection):
        assert kinds(connection) == LIST
        passage.silence()
        query = {"watch": "true", "resourceVersion": str(api.store.revision)}
        stream = connection.open_stream(SERVICES, query)
        api.store.create(objects.service("web"))
        assert next(lines(stream.pieces())).startswith(b'{"type":"ADDED"')
        stream.close()


@isolated
def test_requests_and_watches_end_once_nothing_is_confirmed_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before their own time limits, which are an hour here; with a second in place of 45."""
    monkeypatch.setattr(credentials, "_SILENT_MILLISECONDS", 1000)
    keepalive = partial(tcp_keepalive_socket_options, 1, 1, 9)
    monkeypatch.setattr(credentials, "tcp_keepalive_socket_options", keepalive)
    with ApiServer() as api, connected(api, tmp_path) as connection:
        query = {"watch": "true", "resourceVersion": str(api.store.revision)}
        stream = connection.open_stream(SERVICES, query, idle_timeout=3600)
        assert kinds(connection) == LIST
        rules = (
            "add table ip t\nadd chain ip t c { type filter hook input priority 0; }\n"
            f"add rule ip t c tcp dport {api.port} drop\n"
        )
        subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
        with pytest.raises(UnreachableError, match="no answer in time"):
            connection.get_json("/version", timeout=3600)
        with pytest.raises(UnreachableError, match="no answer in time"):
            next(lines(stream.pieces()))
        subprocess.run(["nft", "flush", "ruleset"], check=True)
        assert kinds(connection) == LIST
