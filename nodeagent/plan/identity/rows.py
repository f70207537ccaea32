"""What the table of controllers says of one: how it is known, what it reads, what it offers. Pure."""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from nodeagent.model.objects import ProxyVersion, Service

Sent = ProxyVersion | Literal["off"]

Sends = Mapping[int | None, Sent]
"""What one annotation says: ports and what is sent on each; under None, what holds for every other port.
A port that it does not cover is left to the next annotation that mentions it."""


class RejectedError(ValueError):
    """The controller rejects a Service with this value, whatever it does with unknown ones."""


Reader = Callable[[str, Service], Sends]
"""Takes the value and the Service. Raises ValueError, with the problem, for a value that the controller
rejects or does not know."""


class Switch(Struct, frozen=True):
    """One annotation that switches PROXY on.

    Attributes:
        key: the annotation; `{port}` in it is replaced by each of the Service's ports in turn.
        read: what its value means.
        otherwise_off: the controller silently takes an unknown value for "off".
        beside: other annotations that the reader uses, to be shown with it.
        alone: the controller rejects a Service in which two of these switches claim one port.
    """

    key: str
    read: Reader
    otherwise_off: bool = False
    beside: tuple[str, ...] = ()
    alone: bool = False


class Certificate(Struct, frozen=True):
    """One annotation by which the load balancer terminates TLS.

    Attributes:
        key: the annotation; `{port}` in it is replaced by each of the Service's ports in turn.
        ports: on which TCP ports of the Service its value makes it do so; takes the value and the Service.
    """

    key: str
    ports: Callable[[str, Service], frozenset[int]]


class Provider(Struct, frozen=True):
    """One kind of load balancer of one controller, and what that offers itself against short-circuiting.

    Attributes:
        name: as a person knows it.
        schemes: the part before `://` in `spec.providerID` of its Nodes; empty if it runs next to any cloud.
        switches: in order of precedence. For each port, the first that mentions it decides; without any,
            PROXY is off, which is every controller's default.
        switched_on: which values switch PROXY on, as docs/configuration.md says it.
        sends: which versions it then sends, as that page says it.
        certificates: the annotations by which it terminates TLS.
        classes: each `spec.loadBalancerClass` that it serves; one that ends with `/` or `.` is the beginning
            of several. A controller that is built on Kubernetes' own library skips every Service with a
            class (cloud-provider:
            controllers/service/controller.go, wantsLoadBalancer).
        written: the beginnings of annotations that it writes itself to a Service that it serves.
        signs: those of other annotations that only it reads.
        announces: it announces the address on a node, where kube-proxy's rules must accept it.
        sends_none: it sends no PROXY header, whatever the annotations say.
        kind: which of its cloud's kinds of load balancer it is, as in "read only for a ..."; empty for a
            cloud with one kind.
        kind_of: returns the kind that a Service asks for.
        doubt: why a Service may send no PROXY nevertheless; empty if it is certain.
        hostname: the annotation, ready to paste, that publishes a host name instead of the address; replace
            the name `lb.example.com` in it. Empty: none is known.
        publishes_hostname: its status has a host name and no address, so it is not short-circuited.
        ip_mode: since when and for which Services its controller sets `ipMode: Proxy`. Empty: it does not.
        ip_mode_on_request: the annotation, ready to paste, that makes it do so.
        workload: where the controller runs in the cluster, as kubectl names it (`deployment/name`, in
            kube-system); empty if the provider runs it, or this is not known.
    """

    name: str
    schemes: tuple[str, ...] = ()
    switches: tuple[Switch, ...] = ()
    switched_on: str = ""
    sends: str = ""
    certificates: tuple[Certificate, ...] = ()
    classes: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    announces: bool = False
    sends_none: bool = False
    kind: str = ""
    kind_of: Callable[[Service], str] = lambda _: ""
    doubt: Callable[[Service], str] = lambda _: ""
    hostname: str = ""
    publishes_hostname: bool = False
    ip_mode: str = ""
    ip_mode_on_request: str = ""
    workload: str = ""

    @property
    def family(self) -> str:
        """The provider's name without the kind of load balancer."""
        return self.name.partition(" (")[0]

    def serves_class(self, name: str) -> bool:
        """Whether its controller serves a Service with this `spec.loadBalancerClass`."""
        beginnings = tuple(start for start in self.classes if start.endswith(("/", ".")))
        return name in self.classes or name.startswith(beginnings)

    def applies(self, service: Service) -> bool:
        """Whether a Service of its controller asks for this kind of load balancer."""
        return self.kind_of(service) == self.kind
