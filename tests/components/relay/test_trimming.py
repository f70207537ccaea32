"""Which connections end if the processes of several reloads have too many."""

import os
import socket
from contextlib import ExitStack

from nodeagent.config.options import RelayOptions
from nodeagent.model.addresses import Endpoint
from tests.components.relay.backend import backend, connect
from tests.components.relay.condition import eventually
from tests.components.relay.namespace import NODE, RELAY, A, B, KeptRelay, isolated

PODS = ("127.0.1.1", "127.0.1.2", "127.0.1.3")
PEERS = 250
NOBODY = 65534


def held_by_pods(closing: ExitStack, endpoint: Endpoint) -> list[socket.socket]:
    """Idle connections of each pod."""
    return [closing.enter_context(connect(endpoint, pod)) for pod in PODS for _ in range(40)]


def is_open(connection: socket.socket) -> bool:
    """Whether the other end has neither closed nor reset it."""
    connection.settimeout(0)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def bind_to_the_relays_address(closing: ExitStack) -> None:
    """As an ordinary user: more connections than may stay, each to a peer of its own."""
    server = closing.enter_context(socket.create_server(("0.0.0.0", 7777), backlog=PEERS))
    os.seteuid(NOBODY)
    try:
        for number in range(1, PEERS):
            client = closing.enter_context(socket.socket())
            client.bind((RELAY, 0))
            client.connect((f"127.0.2.{number}", server.getsockname()[1]))
    finally:
        os.seteuid(0)


@isolated
def test_no_socket_of_another_user_makes_clients_of_the_relay_lose_their_connections() -> None:
    relays = KeptRelay(RelayOptions(launch=True, max_connections=160, max_connections_per_client=60))
    with backend(A.server), ExitStack() as closing:
        relays.apply([A])
        own = closing.enter_context(connect(A.bind, NODE))
        before = held_by_pods(closing, A.bind)
        relays.apply([A, B])
        after = held_by_pods(closing, A.bind)
        bind_to_the_relays_address(closing)
        relays.apply([A])
        assert is_open(own)
        # The pods', of which there were too many, keep what fits.
        assert eventually(lambda: 100 <= sum(map(is_open, (*before, *after))) <= 160, 20)
