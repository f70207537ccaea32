"""Which addresses and TCP ports each Service publishes, and whose they are.

An address and port belong to the Service that comes first by precedence among all that publish them, whether
it sends PROXY or not: what is plain for one Service must not become PROXY because of another one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.objects import ObjectRef, Service
from nodeagent.plan.detection.sending import tcp_ports


@dataclass(frozen=True, slots=True)
class Publications:
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
        ports = frozenset(tcp_ports(service))
        if ports:
            for address in published_addresses(service, listed=service.ref.path in trusted):
                found.setdefault(address, []).append((service.ref, ports))
    return Publications({address: tuple(each) for address, each in found.items()})


def published_addresses(service: Service, *, listed: bool) -> tuple[IPAddress, ...]:
    """The addresses of the status, and of a listed Service the externalIPs, in this order."""
    return tuple(dict.fromkeys((*service.load_balancer_ips, *(service.external_ips if listed else ()))))
