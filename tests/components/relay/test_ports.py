import os
import socket
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

import pytest

from nodeagent.components.relay import ports
from nodeagent.model.addresses import Endpoint, Family
from tests.components.dnat.network import Namespace
from tests.components.relay.node import isolated
from tests.testbed.squatter import squatter

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
REST = "00000000:00000000 00:00000000 00000000     0        0 12345 1 0000000000000000 100 0 0 10 0"


def wildcards(sockets: Iterable[ports.PortSocket]) -> set[tuple[int, int]]:
    found = ports.port_holders(sockets, os.geteuid())
    return {(each.address.version, each.port) for each in found if each.address.is_unspecified}


def row(local: str, state: str = "0A", remote: str = "00000000:0000") -> str:
    return f"   0: {local} {remote} {state} {REST}\n"


@pytest.mark.parametrize(
    ("tables", "taken"),
    [
        ({"tcp": row("00000000:01BB")}, {(4, 443)}),
        ({"tcp": row("0100007F:01BB")}, set()),
        ({"tcp": row("00000000:01BB", state="01", remote="0A00000A:1234")}, set()),
        ({"tcp": row("00000000:01BB", state="06")}, set()),
        ({"tcp6": row("0" * 32 + ":1F90", remote="0" * 32 + ":0000")}, {(4, 8080), (6, 8080)}),
        ({"tcp6": row("0" * 24 + "01000000:1F90", remote="0" * 32 + ":0000")}, set()),
        (
            {"tcp": row("00000000:0050") + row("00000000:0016"), "tcp6": row("0" * 32 + ":01BB")},
            {(4, 22), (4, 80), (4, 443), (6, 443)},
        ),
    ],
    ids=["wildcard", "loopback", "established", "time-wait", "wildcard-6", "loopback-6", "both"],
)
def test_a_port_is_taken_by_a_listener_on_every_address(
    tmp_path: Path, tables: dict[str, str], taken: set[tuple[Family, int]]
) -> None:
    """Neither by one on a single address nor by a connection; a kernel without IPv6 has one table."""
    for table, rows in tables.items():
        (tmp_path / table).write_text(HEADER + rows, encoding="ascii")
    assert wildcards(ports.from_tables(tmp_path)) == taken


@isolated
def test_a_low_port_is_taken_if_somebody_has_it_whatever_this_user_may_bind() -> None:
    """Without the right to low ports, a bind is denied before it is looked for who has them."""
    endpoint = Endpoint(ip_address("127.0.0.1"), 443)
    with socket.create_server(("127.0.0.1", 443)):
        os.seteuid(65534)
        assert ports.HeldPorts().hold([endpoint]) == {endpoint: "user 0"}
    assert ports.HeldPorts().hold([endpoint]) == {}
    assert ports.unbindable([endpoint, Endpoint(endpoint.address, 5000)]) == ()


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    ("address", "families"),
    [("0.0.0.0", {4}), ("::", {6}), ("::", {4, 6})],
    ids=["IPv4", "IPv6 alone", "both on one socket"],
)
def test_a_real_listener_has_the_port_in_its_families(address: str, families: set[int]) -> None:
    """And what the kernel reports is what it does: exactly there no other socket can listen."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=len(families) > 1) as server:
        port = server.getsockname()[1]
        found = wildcards(ports.port_sockets())
        assert found == {(family, port) for family in families}
        refused = {family for family, own in ((4, "127.0.0.1"), (6, "::1")) if not _can_listen(own, port)}
        assert refused == families


def test_one_listener_for_both_families_beside_one_for_ipv6_alone(node: Namespace) -> None:
    """As processes that share a port do (SO_REUSEPORT): IPv4 is taken by one of them."""
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::", 0))
        other.listen()
        port = other.getsockname()[1]
        with socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, reuse_port=True):
            assert wildcards(ports.port_sockets()) == {(4, port), (6, port)}
        assert wildcards(ports.port_sockets()) == {(6, port)}


def _fails(states: Iterable[int]) -> Iterable[object]:
    raise RuntimeError(states)


@pytest.mark.parametrize(
    "tcp_sockets",
    [_fails, lambda _: (), lambda _: ({},), lambda _: ({"idiag_src": "", "idiag_sport": 0},)],
    ids=["fails", "nothing", "no fields", "no address"],
)
def test_whatever_is_wrong_with_sock_diag_the_tables_of_proc_show_who_listens(
    tcp_sockets: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that refuses answers with nothing; whatever else it answers, the slow way is asked."""
    monkeypatch.setattr(ports, "tcp_sockets", tcp_sockets)
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = Endpoint(ip_address("127.0.0.1"), server.getsockname()[1])
        assert ports.PortSocket(here, os.geteuid()) in ports.listening_sockets()


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("address", ["169.254.66.5", "::ffff:169.254.66.5", "fd68:6169:7270::5"])
def test_another_users_socket_on_an_address_that_the_node_does_not_have_is_found(address: str) -> None:
    """IP_FREEBIND needs no privilege. An IPv6 socket on a mapped address has IPv4's port."""
    with squatter(5000, address) as bound:
        assert bound
        (held,) = ports.port_holders(ports.port_sockets(), relay_uid=0).items()
        plain = address.removeprefix("::ffff:")
        assert (str(held[0].address), held[0].port, held[1]) == (plain, 5000, 65534)
        assert held[0] in ports.held_by(ports.port_sockets(), 65534)
        assert ports.held_by(ports.port_sockets(), 0) == frozenset()
        assert ports.port_holders(ports.port_sockets(), relay_uid=65534) == {}


def _can_listen(address: str, port: int) -> bool:
    try:
        with socket.create_server(
            (address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET
        ):
            return True
    except OSError:
        return False
