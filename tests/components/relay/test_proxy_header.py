import select
from itertools import product

import pytest

from nodeagent.model.objects import ProxyVersion
from tests.components.relay.backend import Greeter, Seen, backend, connect, ended, plain_backend, serving, who
from tests.components.relay.node import FAMILIES, INGRESS, NODE, POD, RELAY, KeptRelay, isolated, listener
from tests.testbed.waiting import wait_until


@pytest.mark.parametrize("proxy", ["v1", "v2"])
@pytest.mark.parametrize(("relay", "service", "node", "pod"), FAMILIES)
@isolated
def test_it_gets_the_true_client(proxy: ProxyVersion, relay: str, service: str, node: str, pod: str) -> None:
    """A header that the client sends is data behind the relay's own."""
    it = listener(relay, 443, service, proxy, node)
    relays = KeptRelay()
    with backend(it.server) as seen:
        relays.serve([it])
        assert who(it.bind, pod) == f"{proxy} {pod}"
        assert who(it.bind, node) == f"{proxy} {node}"
        # As a hosts line makes the node connect: the kernel picks the relay address itself as the source.
        assert who(it.bind) == f"{proxy} {node}"
        assert who(it.bind, relay) == f"{proxy} {node}"
        with connect(it.bind, pod) as connection:
            connection.sendall(b"PROXY TCP4 198.51.100.66 192.0.2.1 1 443\r\nwho\n")
            assert connection.recv(100) == b"", "the server took the forged header for one of its commands"
        assert "198.51.100.66" not in {one.source for one in seen}


@isolated
def test_health_checks_send_the_header_too_and_statistics_show_the_server_state(relays: KeptRelay) -> None:
    up, down = listener(port=443), listener(port=8443, proxy="v2")

    with backend(up.server) as seen:
        relays.serve([up, down])
        wait_until(
            lambda: not relays.servers()[down.bind].up and "check passed" in relays.servers()[up.bind].check,
            "a health check of both",
            seconds=20,
        )
        assert seen[0].version == "v1"
        assert relays.servers()[up.bind].up
        assert relays.servers()[up.bind].load_balancer == INGRESS
        assert "refused" in relays.servers()[down.bind].check
        with backend(down.server) as later:
            assert who(down.bind).startswith("v2 "), "connections do not wait for the next check"
            wait_until(
                lambda: relays.servers()[down.bind].up and Seen("v2", "local") in later,
                "its health check",
                seconds=20,
            )


@isolated
def test_without_proxy_the_server_gets_what_the_client_sent_and_nothing_before_it(relays: KeptRelay) -> None:
    plain, other = listener(port=2222, proxy=None), listener(port=443)

    with plain_backend(plain.server) as lines, backend(other.server):
        relays.serve([plain, other])
        wait_until(lambda: "check passed" in relays.servers()[plain.bind].check, "a health check", seconds=20)
        with connect(plain.bind, POD) as connection:
            connection.sendall(b"SSH-2.0-test\n")
            assert connection.recv(100) == b"SSH-2.0-test\n"
        assert who(other.bind, POD) == f"v1 {POD}"
        assert {line for line in lines if line} == {b"SSH-2.0-test\n"}
        assert not relays.difference([plain, other])


_V1 = b"PROXY TCP4 198.51.100.66 192.0.2.1 1 443\r\n"
_V2 = b"\r\n\r\n\0\r\nQUIT\n!\x11\0\x0c" + bytes([198, 51, 100, 66, 192, 0, 2, 1, 0, 1, 1, 0xBB])


@isolated
def test_a_plain_listener_passes_no_header_on(relays: KeptRelay) -> None:
    """In whatever pieces it arrives, and however long the client waits in between, or for the time limit."""
    plain = listener(port=8080, proxy=None)
    with plain_backend(plain.server) as lines:
        relays.serve([plain])
        for header, cut in product((_V1, _V2), (None, 4)):
            with connect(plain.bind, POD) as connection:
                connection.sendall(header[:cut])
                if cut is not None and not select.select([connection], [], [], 1)[0]:
                    connection.sendall(header[cut:] + b"who\n")
                assert ended(connection)
        with connect(plain.bind, POD) as silent, connect(plain.bind, POD) as short:
            short.sendall(b"PROX")
            assert ended(silent)
            assert ended(short)
        assert not any(lines)
        for start in (b"PR\n", b"\r\n\r\n", b"\x16\x03\x01", b"POST / HTTP/1.1\r\n"):
            whole = start + b"longer than a signature\n"
            with connect(plain.bind, POD) as connection:
                for piece in (start, whole[len(start) :]):
                    connection.sendall(piece)
                    select.select([connection], [], [], 0.2)
                assert connection.recv(100) == whole[: whole.index(b"\n") + 1]


@isolated
def test_a_server_that_speaks_first_serves_the_node(relays: KeptRelay) -> None:
    """By a hosts line or from its own address; nothing delays it."""
    plain, other = listener(port=8080, proxy=None), listener(node=NODE)
    with serving(plain.server, Greeter):
        relays.serve([plain, other])
        for source in (None, RELAY, NODE):
            with connect(plain.bind, source) as connection:
                connection.settimeout(4)
                assert connection.recv(100) == b"220 hello\r\n"
