"""Which addresses and TCP ports each Service publishes, whose they are, and what forbids to redirect them.

An address and port belong to the Service that comes first by precedence among all that publish them, whether
it sends PROXY or not: what is plain for one Service must not become PROXY because of another one.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, Service


class Publications(Struct, frozen=True):
    """Who publishes what. The same on every node: no fact of a node is in it.

    Attributes:
        by_address: the Services with TCP ports at each address, in order of precedence, with their ports.
    """

    by_address: Mapping[IPAddress, tuple[tuple[ObjectRef, frozenset[int]], ...]]

    def owner(self, endpoint: Endpoint) -> ObjectRef:
        """The Service that has the address and port. Raises KeyError if none publishes them."""
        for ref, ports in self.by_address[endpoint.address]:
            if endpoint.port in ports:
                return ref
        raise KeyError(endpoint)

    def first(self, address: IPAddress) -> ObjectRef | None:
        """The Service that hostnames at this address belong to; None if it is no Service's."""
        found = self.by_address.get(address)
        return found[0][0] if found else None

    def before(self, ref: ObjectRef, address: IPAddress) -> ObjectRef | None:
        """The Service that comes before `ref` at the address; None if `ref` is the first one there."""
        first = self.first(address)
        return None if first is None or first == ref else first


def publications(services: Iterable[Service], listed: Iterable[str]) -> Publications:
    """Pure: `services` in order of precedence; externalIPs count for those with a path in `listed`."""
    trusted = frozenset(listed)
    found: dict[IPAddress, list[tuple[ObjectRef, frozenset[int]]]] = {}
    for service in services:
        ports = frozenset(service.tcp_ports)
        if ports:
            for address in published_addresses(service, listed=service.ref.path in trusted):
                found.setdefault(address, []).append((service.ref, ports))
    return Publications({address: tuple(each) for address, each in found.items()})


def published_addresses(service: Service, *, listed: bool) -> tuple[IPAddress, ...]:
    """The addresses of the status, and of a listed Service the externalIPs, in this order."""
    return tuple(dict.fromkeys((*service.load_balancer_ips, *(service.external_ips if listed else ()))))


def obstacle(match: Endpoint, ref: ObjectRef, published: Publications, facts: Facts) -> str | None:
    """Why traffic for `match` must not be redirected for the Service `ref`; None if nothing hinders.

    The API server's own endpoint is never redirected, whatever a Service's status says: a node must not be
    able to cut its kubelet off.
    """
    if match in facts.api_servers:
        return f"{match}: never redirected: it is the API server's own address and port"
    owner = published.owner(match)
    if owner != ref:
        return (
            f"{match}: left to {owner}, which is listed or older and publishes the same address and port; "
            "list a Service in loadBalancers.services to put it first"
        )
    return None
