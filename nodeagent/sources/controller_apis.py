"""Controllers' own APIs: a table of which kinds there are, and where in them the hosts stand.

What needs more than a row (a host by regular expression, a chain of references) is not read: DNAT serves it
without a name.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from nodeagent.errors import one_line
from nodeagent.model.objects import ControllerRoute
from nodeagent.sources import api_objects as api
from nodeagent.sources.object_parts import (
    DecodingError,
    created_of,
    deciding_annotations,
    decode,
    ref_of,
    some_hosts,
)
from nodeagent.sources.traefik_rules import hosts_in_rule

HostReader = Callable[[str], tuple[str, ...]]


def _istio_host(text: str) -> tuple[str, ...]:
    """The host behind the namespace that Istio lets stand before it (`prod/www.example.com`, `./*`)."""
    host = text.rpartition("/")[2]
    return (host,) if host != "*" else ()


@dataclass(frozen=True, slots=True)
class ControllerKind:
    """One kind.

    Attributes:
        group: its API group.
        versions: those that are read, the best first; the fields stand alike in all of them.
        plural: its name in paths.
        kind: its name in objects.
        controller: what IngressClasses call the controller that serves it.
        hosts: where the texts with hosts stand; `[]` is every item of a list.
        read: one such text to its hosts.
        only_with: a list that must hold something else than `mesh` (the sidecars, for Istio).
    """

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    controller: str
    hosts: str
    read: HostReader
    only_with: str = ""

    def decode(self, raw: bytes | dict[str, Any]) -> ControllerRoute | None:
        """The object; None for one that does not concern load balancers. Raises DecodingError."""
        document = _document(raw)
        if self.only_with and not any(text != "mesh" for text in _texts(document, self.only_with)):
            return None
        metadata = decode(document, api.Head).metadata
        hosts = (host for text in _texts(document, self.hosts) for host in self.read(text))
        return ControllerRoute(
            ref=ref_of(self.kind, metadata),
            controller=self.controller,
            created=created_of(metadata),
            hosts=some_hosts(hosts, []),
            annotations=deciding_annotations(metadata),
        )


_TRAEFIK = "traefik.io/ingress-controller"
_ISTIO = "istio.io/ingress-controller"
_ISTIO_VERSIONS = ("v1", "v1beta1", "v1alpha3")

CONTROLLER_KINDS: tuple[ControllerKind, ...] = (
    *(
        ControllerKind(
            group, ("v1alpha1",), f"{kind.lower()}s", kind, _TRAEFIK, "spec.routes[].match", hosts_in_rule
        )
        # traefik.containo.us is the group of Traefik before 2.10, which it went on to serve until 3.0.
        for group in ("traefik.io", "traefik.containo.us")
        for kind in ("IngressRoute", "IngressRouteTCP")
    ),
    ControllerKind(
        "networking.istio.io",
        _ISTIO_VERSIONS,
        "gateways",
        "Gateway",
        _ISTIO,
        "spec.servers[].hosts[]",
        _istio_host,
    ),
    ControllerKind(
        "networking.istio.io",
        _ISTIO_VERSIONS,
        "virtualservices",
        "VirtualService",
        _ISTIO,
        "spec.hosts[]",
        _istio_host,
        only_with="spec.gateways[]",
    ),
)


def _document(raw: bytes | dict[str, Any]) -> dict[str, Any]:
    if isinstance(raw, dict):
        return raw
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise DecodingError(one_line(error)) from error


def _texts(value: object, path: str) -> Iterator[str]:
    """Yields the texts at a path; what is not there, or of another form, yields nothing."""
    if not path:
        if isinstance(value, str):
            yield value
        return
    if path.startswith("[]"):
        for item in value if isinstance(value, list) else ():
            yield from _texts(item, path[2:].removeprefix("."))
        return
    cut = min((at for at in (path.find("."), path.find("[]")) if at >= 0), default=len(path))
    if isinstance(value, dict):
        yield from _texts(value.get(path[:cut]), path[cut:].removeprefix("."))
