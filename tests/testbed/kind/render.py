"""Writes what kind's cluster gets: the virtual machines' objects and load balancer, as far as they fit.

    python -m tests.testbed.kind.render objects CERTIFICATES
    python -m tests.testbed.kind.render haproxy NAME=ADDRESS...

LB_ADDRESS in the environment is the load balancer's address.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from tests.testbed.load_balancer import haproxy_configuration
from tests.testbed.services import INGRESS_SERVICE
from tests.testbed.vagrant.manifests import Object, manifests
from tests.testbed.vagrant.render import settings


def objects(certificates: Path, load_balancer: str) -> list[Object]:
    """Return what the virtual machines' cluster runs, without what another cluster determines.

    The Service's ClusterIP is 10.96.0.10, which kubeadm gives to the cluster's DNS. `python -m
    tests.testbed.vagrant.render certificates` has written the certificates.
    """
    found = manifests(certificates, load_balancer)
    (service,) = (
        obj for obj in found if obj["kind"] == "Service" and obj["metadata"]["name"] == INGRESS_SERVICE.name
    )
    for field in ("clusterIP", "clusterIPs"):
        del service["spec"][field]
    return found


def haproxy_file(nodes: Sequence[str], load_balancer: str) -> str:
    """Return the load balancer's haproxy.cfg, for nodes that are each `NAME=ADDRESS`."""
    service = replace(INGRESS_SERVICE.within((4,)), load_balancer_ips=(ip_address(load_balancer),))
    pairs = (node.partition("=") for node in nodes)
    return haproxy_configuration(service, {name: (ip_address(address),) for name, _, address in pairs})


def main() -> None:
    """Write what the command line asks for to standard output."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    files = parser.add_subparsers(dest="file", required=True)
    files.add_parser("objects").add_argument("certificates", type=Path)
    files.add_parser("haproxy").add_argument("node", nargs="+")
    options = parser.parse_args()
    load_balancer = settings()["LB_ADDRESS"]
    if options.file == "haproxy":
        sys.stdout.write(haproxy_file(options.node, load_balancer))
    else:
        items = objects(options.certificates, load_balancer)
        json.dump({"apiVersion": "v1", "kind": "List", "items": items}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
