"""What is known of one provider: a row of the table in providers.py."""

from collections.abc import Callable
from dataclasses import dataclass

from nodeagent.model.objects import Service
from nodeagent.plan.detection.readers import Reader


@dataclass(frozen=True, slots=True)
class Switch:
    """One annotation that switches PROXY on.

    Attributes:
        key: the annotation; `{port}` in it stands for each of the Service's ports in turn.
        read: what its value means.
        otherwise_off: the controller takes a value that it does not know for "off", and says so nowhere.
        beside: another annotation that the reader looks at, to be shown with it.
    """

    key: str
    read: Reader
    otherwise_off: bool = False
    beside: str = ""


@dataclass(frozen=True, slots=True)
class OwnRemedies:
    """What the provider itself has against the short circuit, in words for a person (`nodeagent doctor`).

    Attributes:
        hostname: the annotation, ready to paste, that publishes a host name instead of the address; the name
            `lb.example.com` in it is to be replaced. Empty: none is known.
        always_hostname: it publishes no address anyway, or when not.
        ip_mode: since when and for which Services its controller sets `ipMode: Proxy`. Empty: it does not.
        ip_mode_on_request: the annotation, ready to paste, that makes it do so.
    """

    hostname: str = ""
    always_hostname: str = ""
    ip_mode: str = ""
    ip_mode_on_request: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    """One kind of load balancer of one provider.

    Attributes:
        name: as a person knows it.
        schemes: what stands before `://` in `spec.providerID` of its Nodes.
        switches: the strongest first. Of each port, the first that speaks of it decides; without any, PROXY
            is off, which is every provider's default.
        remedies: what it offers itself.
        applies: whether a Service's load balancer is of this kind, for providers that have several.
        exclusive: its controller refuses a Service in which two switches claim one port.
    """

    name: str
    schemes: tuple[str, ...]
    switches: tuple[Switch, ...]
    remedies: OwnRemedies = OwnRemedies()
    applies: Callable[[Service], bool] = lambda _: True
    exclusive: bool = False
