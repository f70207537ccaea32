"""The world as the Kubernetes API would describe it, in the families that a world supports.

manifests/ holds the description of an IPv4 world, to be read and used as it is; here the same objects
get the addresses of other families.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.testbed import addresses
from tests.testbed.addresses import Address, Family

MANIFESTS = Path(__file__).parent / "manifests"
"""An IPv4 world as the Kubernetes API would describe it."""

_POD_CIDRS = {
    "node1": (addresses.POD_CIDR1, addresses.POD_CIDR1_6),
    "node2": (addresses.POD_CIDR2, addresses.POD_CIDR2_6),
}


def write_manifests(
    directory: Path, families: Sequence[Family], cluster_ips: Sequence[Address] | None = None
) -> None:
    """Write the objects of manifests/ with the addresses of these families.

    A Service may have ClusterIPs of one family where its load balancer has two.
    """
    directory.mkdir(exist_ok=True)
    for name, text in _manifests(tuple(families), tuple(cluster_ips or ())).items():
        (directory / name).write_text(text, encoding="utf-8")


@cache
def _manifests(families: tuple[Family, ...], cluster_ips: tuple[Address, ...]) -> Mapping[str, str]:
    written = {}
    for source in MANIFESTS.glob("*.yaml"):
        objects = list(yaml.safe_load_all(source.read_text(encoding="utf-8")))
        for found in objects:
            _readdress(found, families, cluster_ips)
        written[source.name] = yaml.safe_dump_all(objects)
    return written


def service_addresses(cluster_ips: Sequence[Address]) -> dict[str, object]:
    """Return the part of a Service's spec that holds its ClusterIPs and families."""
    return {
        "clusterIP": str(cluster_ips[0]),
        "clusterIPs": [str(address) for address in cluster_ips],
        "ipFamilies": [f"IPv{address.version}" for address in cluster_ips],
        "ipFamilyPolicy": "SingleStack" if len(cluster_ips) == 1 else "PreferDualStack",
    }


def load_balancer_status(ips: Iterable[Address], **more: str) -> dict[str, object]:
    """Return the status of a Service or an Ingress behind these addresses; `more` goes to every entry."""
    return {"loadBalancer": {"ingress": [{"ip": str(address), **more} for address in ips]}}


def _readdress(found: dict[str, Any], families: tuple[Family, ...], cluster_ips: tuple[Address, ...]) -> None:
    in_front = addresses.within(addresses.EVERY_LOAD_BALANCER_IP, families)
    match found["kind"]:
        case "Service":
            own = cluster_ips or addresses.within(addresses.INGRESS_CLUSTER_IPS, families)
            found["spec"] |= service_addresses(own)
            found["status"] = load_balancer_status(in_front, ipMode="VIP")
        case "Ingress":
            found["status"] = load_balancer_status(in_front)
        case "Node":
            name = found["metadata"]["name"]
            ranges = [str(network) for network in addresses.within(_POD_CIDRS[name], families)]
            found["spec"] |= {"podCIDR": ranges[0], "podCIDRs": ranges}
            others = [each for each in found["status"]["addresses"] if each["type"] != "InternalIP"]
            internal = [
                {"type": "InternalIP", "address": str(addresses.address_of(name, family))}
                for family in families
            ]
            found["status"]["addresses"] = [*internal, *others]
