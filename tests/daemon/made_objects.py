"""Objects of the cluster that tests make, and the configuration of their agents, which lists them."""

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path

import yaml

from tests.apiserver import ApiError, Object, Store, objects
from tests.apiserver.objects import Port
from tests.testbed.addresses import LOAD_BALANCER_IP
from tests.testbed.world import NODEAGENT_CONFIG

MADE_NAMESPACE = "made"
MADE_SERVICES = 5

_SERVICES = [
    {"namespace": "ingress-nginx", "name": "ingress-nginx-controller"},
    *({"namespace": MADE_NAMESPACE, "name": f"lb-{number}"} for number in range(MADE_SERVICES)),
]
MADE_CLUSTER_IPS = IPv4Network("10.96.1.0/24")
"""Of the Services that `made_service` builds."""


def ingress(name: str, hosts: Sequence[str], address: str = str(LOAD_BALANCER_IP)) -> Object:
    return objects.ingress(name, hosts=hosts, addresses=[address])


def made_service(number: int, *, ports: Sequence[int] = (80, 443)) -> Object:
    """Build one of the Services that the agents' configuration lists; nothing answers behind it."""
    return objects.service(
        f"lb-{number}",
        MADE_NAMESPACE,
        kind="LoadBalancer",
        cluster_ips=[str(MADE_CLUSTER_IPS[number + 1])],
        ports=[Port(f"p{port}", port, port, 30000 + port) for port in ports],
        addresses=[made_address(number)],
    )


def change_cluster(store: Store, dice: random.Random) -> None:
    """Let one of the load balancers, or an Ingress behind it, come, change or go."""
    number = dice.randrange(MADE_SERVICES)
    match dice.randrange(4):
        case 0:
            ports = dice.sample([80, 443, 9000], dice.randrange(1, 4))
            store.apply(made_service(number, ports=ports))
        case 1 | 2:
            hosts = [f"n{dice.randrange(40)}.example.test" for _ in range(3)]
            store.apply(ingress(f"flow-{number}", list(dict.fromkeys(hosts)), made_address(number)))
        case _:
            # It may not be there.
            with suppress(ApiError):
                store.delete("services", f"lb-{number}", MADE_NAMESPACE)


def made_address(number: int) -> str:
    return f"203.0.113.{100 + number}"


def write_config(file: Path, **sections: Mapping[str, object]) -> Path:
    """Write the testbed's configuration, with these options, by section, in place of its own."""
    document = yaml.safe_load(NODEAGENT_CONFIG.read_text(encoding="utf-8"))
    document["loadBalancers"]["services"] = _SERVICES
    for name, options in sections.items():
        document.setdefault(name, {}).update(options)
    # An agent may read it at any moment: it must never see half of it.
    temporary = file.with_suffix(".new")
    temporary.write_text(yaml.safe_dump(document), encoding="utf-8")
    return temporary.replace(file)
