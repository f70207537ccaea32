"""The node's own names and addresses."""

import os
import socket

import pytest

from nodeagent.sources.node.identity import default_node_name, own_names, source_addresses


def test_the_node_is_named_as_kubelet_would_and_answers_to_its_long_and_short_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The host name in lower case; the names of its Node object and those of its host."""
    uname = os.uname_result(("Linux", "Worker-1.Example.com", "6.1", "#1", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: uname)
    assert default_node_name() == "worker-1.example.com"
    names = {"node1.internal", "node1", "worker-1.example.com", "worker-1"}
    assert own_names("Node1.internal") == names


def test_a_machine_without_a_route_has_no_source_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family that is switched off is left out."""

    def unreachable(*_: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "socket", unreachable)
    assert source_addresses() == ()
