"""Listeners of a relay, and a world for a test of it: namespaces of its own with addresses on `lo`."""

import functools
import subprocess
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import ParamSpec

from nodeagent.components.relay.component import Relay
from nodeagent.components.relay.haproxy_sockets import Processes, ServerState, read_processes
from nodeagent.components.relay.state import HaproxyState, RelayChange
from nodeagent.config.options import RelayOptions
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, Listener
from nodeagent.model.objects import ObjectRef, ProxyVersion
from tests import isolation
from tests.components.converging import converge, remove

P = ParamSpec("P")

RUN = Path("/run/nodeagent")
LAUNCHED, PODS = RelayOptions(launch=True), RelayOptions()
CONFIG = RUN / "haproxy.cfg"
RELAY, RELAY_2, RELAY_6 = "169.254.66.5", "169.254.66.6", "fd68:6169:7270::5"
SERVICE, SERVICE_6 = "10.96.0.10", "fd00:96::10"
NODE, NODE_6 = "192.0.2.10", "2001:db8::10"
POD, POD_6 = "10.244.1.7", "fd00:244::7"
FAMILIES = [(RELAY, SERVICE, NODE, POD), (RELAY_6, SERVICE_6, NODE_6, POD_6)]
INGRESS = ObjectRef("Service", "ingress-nginx", "ingress-nginx-controller")


def isolated(test: Callable[P, None]) -> Callable[P, None]:
    """A test whose body runs in a world with `lo` alone, the addresses above on it, and an empty /run."""

    @isolation.isolated
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        addresses = (RELAY, RELAY_2, RELAY_6, SERVICE, SERVICE_6, NODE, NODE_6, POD, POD_6)
        # Without `nodad`, the kernel makes an IPv6 address usable a moment later, even on `lo`.
        commands = [
            f"address add {each}{'/128 nodad' if ':' in each else '/32'} dev lo" for each in addresses
        ]
        subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)
        test(*args, **kwargs)

    return run


def listener(  # noqa: PLR0913 - each names one field
    bind: str = RELAY,
    port: int = 443,
    server: str = SERVICE,
    proxy: ProxyVersion | None = "v1",
    node: str | None = None,
    *,
    owner: ObjectRef = INGRESS,
) -> Listener:
    """A listener for the ingress controller whose server has the same port."""
    return Listener(
        bind=Endpoint(ip_address(bind), port),
        server=Endpoint(ip_address(server), port),
        proxy=proxy,
        load_balancer=owner,
        node_address=ip_address(node) if node else None,
    )


A, B, C = listener(RELAY), listener(RELAY_2), listener(RELAY_6, server=SERVICE_6)


class KeptRelay(Relay):
    """A relay whose listeners the test chooses, on /run/nodeagent, which no other program uses here."""

    def __init__(self, options: RelayOptions = LAUNCHED, drain_seconds: float = 5.0) -> None:
        super().__init__(options, drain_seconds)

    def difference(self, listeners: Iterable[Listener]) -> RelayChange:
        return self.diff(self.read(), Desired(listeners=tuple(listeners)))

    def serve(self, listeners: Iterable[Listener]) -> None:
        failure = self.serve_what_it_can(listeners)
        assert failure == "", failure

    def serve_what_it_can(self, listeners: Iterable[Listener]) -> str:
        """The same; return what was left out and why."""
        return converge(self, Desired(listeners=tuple(listeners)))

    def clean_up(self) -> None:
        remove(self, Desired())
        self.leave()

    def ready_of(self, listeners: Iterable[Listener]) -> frozenset[Endpoint]:
        return frozenset(self.ready(self.read(), Desired(listeners=tuple(listeners))))

    def state(self) -> HaproxyState:
        """The only HAProxy's, or the one that serves."""
        read = self.read()
        return read.serving or read.haproxies[-1]

    def servers(self) -> dict[Endpoint, ServerState]:
        """What HAProxy reports about each listener, by where it listens."""
        told = self.statistics()
        assert isinstance(told, tuple), told
        return {each.bind: each for each in told}

    @staticmethod
    def processes(directory: Path = RUN) -> Processes:
        """HAProxy's, as its master lists them."""
        found = read_processes(directory / "master.sock")
        assert isinstance(found, Processes), found
        return found
