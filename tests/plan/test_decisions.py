"""What is decided on a small cluster: decisions.yaml has the cases."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from nodeagent.model import objects as model
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Desired
from tests.cases import cases_of
from tests.plan import made_up
from tests.plan.made_up import FACTS, NODE, config, desired, endpoint, redirects

_CASES: dict[str, dict[str, Any]] = cases_of(__file__, "decisions.yaml")


def _addresses(texts: Iterable[str]) -> tuple[IPAddress, ...]:
    return tuple(map(ip_address, texts))


def _allowed(said: Any) -> model.AllowedNamespaces:  # noqa: ANN401 - one word, or a selector's rules
    if isinstance(said, str):
        return model.AllowedNamespaces(said)  # type: ignore[arg-type] # read from YAML
    rules = (model.LabelRule(key, operator, tuple(values)) for key, operator, values in said)
    return model.AllowedNamespaces("Selector", tuple(rules))


_FIELDS: dict[str, Callable[[Any], Any]] = {
    "allowed": _allowed,
    "problems": tuple,
    "external_ips": _addresses,
    "listeners": lambda all_: [made_up.listener(**_read(each, _FIELDS)) for each in all_],
    **dict.fromkeys(("to", "declined"), lambda parents: [made_up.parent(**each) for each in parents]),
    "points": lambda points: tuple(
        made_up.point(**each) if isinstance(each, dict) else made_up.point(each) for each in points
    ),
}
_FACTS: dict[str, Callable[[Any], Any]] = {
    "dns": lambda known: {
        name: made_up.dns_answer(**said) if isinstance(said, dict) else made_up.dns_answer(said)
        for name, said in known.items()
    },
    "standing_names": lambda known: {name: frozenset(map(ip_address, at)) for name, at in known.items()},
    "port_holders": lambda held: {endpoint(text): user for text, user in held.items()},
    "addresses": lambda texts: tuple(map(made_up.interface_address, texts)),
    "short_circuited": lambda texts: frozenset(map(ip_address, texts)),
    "api_servers": lambda texts: frozenset(map(endpoint, texts)),
    "api_server_names": frozenset,
    "source_addresses": _addresses,
}
_NODE: dict[str, Callable[[Any], Any]] = {
    "addresses": _addresses,
    "external_addresses": _addresses,
    "pod_cidrs": lambda texts: tuple(map(ip_network, texts)),
}


def _read(given: Mapping[str, Any], readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    return {key: readers.get(key, lambda said: said)(said) for key, said in given.items()}


def _controller_route(*hosts: str, **fields: Any) -> model.ControllerRoute:  # noqa: ANN401
    ref = model.ObjectRef("IngressRoute", "web", "site")
    return model.ControllerRoute(ref, controller="traefik.io/ingress-controller", hosts=hosts, **fields)


_LATER = {"local_only", "gateway_namespace", "external_ips"}
"""Fields of a Service that its builder leaves out."""
_BUILDERS: Mapping[str, Callable[..., Any]] = {
    "services": made_up.service,
    "claims": made_up.ingress,
    "classes": model.IngressClass,
    "namespaces": model.Namespace,
    "gateways": made_up.gateway,
    "listener_sets": made_up.listener_set,
    "routes": made_up.route,
    "controller_routes": _controller_route,
    "service_ranges": lambda text: model.ServiceRange("kubernetes", (ip_network(text),)),
    "cluster_ips_of_others": ip_address,
}


def _made(build: Callable[..., Any], given: str | Mapping[str, Any]) -> Any:  # noqa: ANN401 - as it builds
    if isinstance(given, str):
        return build(given)
    fields = _read(given, _FIELDS)
    later = {key: fields.pop(key) for key in _LATER & fields.keys()}
    made = build(*fields.pop("hosts", ()), *fields.pop("listeners", ()), **fields)
    return replace(made, **later) if later else made


def _planned(case: Mapping[str, Any]) -> Desired:
    found = [
        _made(build, each)
        for kind, build in _BUILDERS.items()
        for each in case.get(kind, ["blue"] if kind == "services" else [])
    ]
    facts = replace(FACTS, **_read(case.get("facts", {}), _FACTS))
    names = [
        one.ref.name for one in found if isinstance(one, model.Service) and one.ref.name in {"blue", "green"}
    ]
    options = config(
        case.get("config", ""), proxies=case.get("proxies", names), balancers=case.get("balancers", "")
    )
    own = _read(case.get("node", {}), _NODE)
    return desired(*found, node=replace(NODE, **own), facts=facts, options=options)


def _texts(planned: Desired) -> Iterable[str]:
    yield from planned.remarks
    for each in planned.load_balancers:
        yield from (each.reason, *each.remarks, *each.taken)
    yield from (each.reason for each in planned.names)


@pytest.mark.parametrize("case", _CASES)
def test_what_is_decided(case: str) -> None:
    right = _CASES[case]
    planned = _planned(right)
    relays = {at: each.load_balancer.name for each in planned.load_balancers for at in each.relay_addresses}
    decided = {each.load_balancer.name: f"{each.status} {each.code}" for each in planned.load_balancers}
    decided |= {each.name: f"{each.status} {each.code}" for each in planned.names}
    text, said = "\n".join(_texts(planned)), right.get("said_once", ())
    found = {
        "decided": {name: decided.get(name) for name in right.get("decided", ())},
        "hosts": sorted({f"{relays[line.address]} {line.name}" for line in planned.hosts}),
        "redirects": [*redirects(planned)],
        "listeners": [f"{each.bind.port} {each.proxy or 'plain'}" for each in planned.listeners],
        "families": sorted({each.bind.address.version for each in planned.listeners}),
        "guarded": [*map(str, planned.dnat.guarded)],
        "remarks": [*planned.remarks],
        "says": [word for word in right.get("says", ()) if word in text],
        "said_once": [word for word in said if [word in each for each in planned.remarks] == [True]],
        "asks": {
            name: [at for at in right.get("asks", {}).get(name, ()) if ip_address(at) in asked.addresses]
            for name, asked in planned.questions.items()
        },
    }
    given = {*_BUILDERS, "facts", "config", "proxies", "balancers", "node"}
    assert {key: found[key] for key in right.keys() - given} == {
        key: value for key, value in right.items() if key not in given
    }
