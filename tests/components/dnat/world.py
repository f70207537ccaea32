"""A node with a pod and the outside, and the load balancer's address there."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Self

from nodeagent.components.dnat.component import Dnat
from nodeagent.components.dnat.state import DnatBackend, DnatChange, difference
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, DnatRules, Redirect
from nodeagent.model.objects import ObjectRef
from tests.components.dnat.network import Namespace, Server

LB = {4: "203.0.113.10", 6: "2001:db8:113::10"}
RELAY_RANGE = {4: ip_network("169.254.66.0/24"), 6: ip_network("fd68:6169:7270::/112")}
RELAY = {4: "169.254.66.5", 6: "fd68:6169:7270::5"}
NODE = {4: "192.0.2.10", 6: "fd00:2::10"}
OUTSIDE = {4: "192.0.2.1", 6: "fd00:2::1"}
POD = {4: "10.244.1.5", 6: "fd00:244:1::5"}
POD_RANGE = {4: ip_network("10.244.1.0/24"), 6: ip_network("fd00:244:1::/64")}
WEB = ObjectRef("Service", "ingress-nginx", "controller")

KUBE_PROXY = Path(__file__).with_name("kube_proxy.nft").read_text()


class World:
    """The namespaces `node`, `pod` and `outside`, wired up, with a server at each place a packet can end."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.node, self.pod, self.outside = (stack.enter_context(closing(Namespace())) for _ in range(3))
            self._wire()
            for family in (4, 6):
                stack.enter_context(Server(self.node, RELAY[family], 443, "relay"))
                stack.enter_context(Server(self.outside, LB[family], 443, "lb"))
            stack.enter_context(Server(self.pod, POD[4], 8080, "pod"))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @staticmethod
    @contextmanager
    def answers(client: Namespace) -> Iterator[list[str]]:
        """Connect from there to the load balancer all the while the block runs; yields what was heard."""
        heard: list[str] = []
        done = threading.Event()

        def connect() -> None:
            while not done.is_set():
                heard.append(client.answer(LB[4], 443))

        threads = [threading.Thread(target=connect) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield heard
        finally:
            done.set()
            for thread in threads:
                thread.join()

    def _wire(self) -> None:
        self.node.sysctl("net/ipv4/ip_forward", "1")
        self.node.sysctl("net/ipv6/conf/all/forwarding", "1")
        self.node.ip(
            "link add up0 type veth peer name eth0",
            "link add pod0 type veth peer name eth1",
            f"link set eth0 netns {self.outside.path}",
            f"link set eth1 netns {self.pod.path}",
            f"addr add {NODE[4]}/24 dev up0",
            f"addr add {NODE[6]}/64 dev up0 nodad",
            "addr add 10.244.1.1/24 dev pod0",
            "addr add fd00:244:1::1/64 dev pod0 nodad",
            f"addr add {RELAY[4]}/32 dev lo",
            f"addr add {RELAY[6]}/128 dev lo nodad",
            "link set up0 up",
            "link set pod0 up",
        )
        self.outside.ip(
            f"addr add {OUTSIDE[4]}/24 dev eth0",
            f"addr add {OUTSIDE[6]}/64 dev eth0 nodad",
            f"addr add {LB[4]}/32 dev lo",
            f"addr add {LB[6]}/128 dev lo nodad",
            "link set eth0 up",
            f"route add default via {NODE[4]}",
            f"route add default via {NODE[6]}",
        )
        self.pod.ip(
            f"addr add {POD[4]}/24 dev eth1",
            f"addr add {POD[6]}/64 dev eth1 nodad",
            "link set eth1 up",
            "route add default via 10.244.1.1",
            "route add default via fd00:244:1::1",
        )
        self.node.ip(f"route add default via {OUTSIDE[4]}", f"route add default via {OUTSIDE[6]}")


def redirect(match: str, to: str, owner: ObjectRef = WEB, port: int = 443) -> Redirect:
    """An entry for one port, the same on both sides."""
    return Redirect(Endpoint(ip_address(match), port), Endpoint(ip_address(to), port), owner)


def plain() -> DnatRules:
    redirects = tuple(redirect(LB[family], RELAY[family]) for family in (4, 6))
    return DnatRules(redirects, tuple(POD_RANGE.values()))


def guarded() -> DnatRules:
    """The same, and the relay's ranges for the node and its pods alone."""
    admitted = tuple(POD_RANGE.values())
    return replace(plain(), guarded=tuple(RELAY_RANGE.values()), admitted=admitted)


def apply(backend: DnatBackend | Dnat, desired: DnatRules) -> DnatChange:
    change = difference_of(backend, desired)
    assert run(backend, change) == ""
    return change


def run(backend: DnatBackend | Dnat, change: DnatChange) -> str:
    return backend.apply(change) if isinstance(backend, Dnat) else backend.run(change)


def difference_of(backend: DnatBackend | Dnat, desired: DnatRules) -> DnatChange:
    if isinstance(backend, Dnat):
        return backend.diff(backend.read(), Desired(dnat=desired))
    return difference(backend.read(), desired)
