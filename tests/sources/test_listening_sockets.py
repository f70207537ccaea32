"""Which TCP ports are taken on every address of the node."""

import socket
from pathlib import Path

import pytest

from nodeagent.sources.node.listening_sockets import taken_ports

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
REST = "00000000:00000000 00:00000000 00000000     0        0 12345 1 0000000000000000 100 0 0 10 0"


def row(local: str, state: str = "0A", remote: str = "00000000:0000") -> str:
    """A line of /proc/net/tcp."""
    return f"   0: {local} {remote} {state} {REST}\n"


@pytest.mark.parametrize(
    ("table", "line", "ports"),
    [
        ("tcp", row("00000000:01BB"), {443}),
        ("tcp", row("0100007F:01BB"), set()),
        ("tcp", row("00000000:01BB", state="01", remote="0A00000A:1234"), set()),
        ("tcp", row("00000000:01BB", state="06"), set()),
        ("tcp6", row("0" * 32 + ":1F90", remote="0" * 32 + ":0000"), {8080}),
        ("tcp6", row("0" * 24 + "01000000:1F90", remote="0" * 32 + ":0000"), set()),
    ],
    ids=["wildcard", "loopback", "established", "time-wait", "wildcard-6", "loopback-6"],
)
def test_a_port_is_taken_by_a_listener_on_every_address(
    tmp_path: Path, table: str, line: str, ports: set[int]
) -> None:
    """Neither by one on a single address nor by a connection."""
    (tmp_path / table).write_text(HEADER + line, encoding="ascii")
    assert taken_ports(tmp_path) == ports


def test_both_families_count(tmp_path: Path) -> None:
    """A listener on :: takes IPv4's port too, unless told otherwise; the table can't tell."""
    (tmp_path / "tcp").write_text(HEADER + row("00000000:0050") + row("00000000:0016"), encoding="ascii")
    (tmp_path / "tcp6").write_text(HEADER + row("0" * 32 + ":01BB"), encoding="ascii")
    assert taken_ports(tmp_path) == {22, 80, 443}


def test_a_kernel_without_ipv6_is_no_error(tmp_path: Path) -> None:
    """Its table is absent."""
    (tmp_path / "tcp").write_text(HEADER + row("00000000:0050"), encoding="ascii")
    assert taken_ports(tmp_path) == {80}


def test_the_kernels_own_table_is_understood() -> None:
    """A real listener on the loopback address takes no port of every address."""
    before = taken_ports()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert taken_ports() - before == set()
        table = Path("/proc/self/net/tcp").read_text(encoding="ascii")
        assert f"0100007F:{port:04X} 00000000:0000 0A" in table
