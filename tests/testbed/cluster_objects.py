"""The world as the Kubernetes API would describe it, in the families that a world supports.

manifests/ holds the description of an IPv4 world, to be read and used as it is; here the same objects
get the addresses of other families.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.addresses import (
    EVERY_LOAD_BALANCER_IP,
    INGRESS_CLUSTER_IPS,
    POD_CIDR1,
    POD_CIDR1_6,
    POD_CIDR2,
    POD_CIDR2_6,
    Address,
    Family,
    address_of,
    within,
)

MANIFESTS = Path(__file__).parent / "manifests"
"""An IPv4 world as the Kubernetes API would describe it."""

_POD_CIDRS = {
    "node1": (POD_CIDR1, POD_CIDR1_6),
    "node2": (POD_CIDR2, POD_CIDR2_6),
}


def write_manifests(
    directory: Path, families: Sequence[Family], cluster_ips: Sequence[Address] | None = None
) -> None:
    """Write the objects of manifests/ with the addresses of these families.

    A Service may have ClusterIPs of one family where its load balancer has two.
    """
    directory.mkdir(exist_ok=True)
    for source in MANIFESTS.glob("*.yaml"):
        objects = list(yaml.safe_load_all(source.read_text(encoding="utf-8")))
        for found in objects:
            _readdress(found, families, cluster_ips or within(INGRESS_CLUSTER_IPS, families))
        (directory / source.name).write_text(yaml.safe_dump_all(objects), encoding="utf-8")


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


def _readdress(found: dict[str, Any], families: Sequence[Family], cluster_ips: Sequence[Address]) -> None:
    in_front = within(EVERY_LOAD_BALANCER_IP, families)
    match found["kind"]:
        case "Service":
            found["spec"] |= service_addresses(cluster_ips)
            found["status"] = load_balancer_status(in_front, ipMode="VIP")
        case "Ingress":
            found["status"] = load_balancer_status(in_front)
        case "Node":
            name = found["metadata"]["name"]
            ranges = [str(network) for network in within(_POD_CIDRS[name], families)]
            found["spec"] |= {"podCIDR": ranges[0], "podCIDRs": ranges}
            others = [each for each in found["status"]["addresses"] if each["type"] != "InternalIP"]
            own = [{"type": "InternalIP", "address": str(address_of(name, each))} for each in families]
            found["status"]["addresses"] = [*own, *others]
