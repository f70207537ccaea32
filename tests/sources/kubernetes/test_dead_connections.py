"""Connections whose other end is gone without a word: no FIN, no RST."""

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from kubernetes.utils.keepalive import tcp_keepalive_socket_options

from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes import credentials, single_requests
from nodeagent.sources.kubernetes.connection import Connection, connect
from nodeagent.sources.kubernetes.errors import UnreachableError
from nodeagent.sources.kubernetes.listing import lines
from nodeagent.sources.kubernetes.single_requests import is_going
from tests.apiserver import ApiServer, objects
from tests.isolation import isolated
from tests.sources.kubernetes.passage import Passage
from tests.sources.kubernetes.test_connection import LIST, SERVICES, kinds
from tests.sources.kubernetes.test_kubeconfig import changed
from tests.sources.kubernetes.watching import connected

_OWN = ObjectRef("DaemonSet", "nodeagent", "nodeagent")


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


def test_an_ending_agent_asks_for_twenty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that restarts answers again within that time."""
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr(single_requests, "time", clock)
    silent = Mock(get_json=Mock(side_effect=UnreachableError("no route")))
    with pytest.raises(UnreachableError):
        is_going(silent, _OWN)
    assert sum(slept) == 20.0


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
