"""Writes the testbed's configuration files for the virtual machines, with Python's standard library alone.

    python3 -m tests.testbed.vagrant.render names|haproxy NODES|certificates DIRECTORY

It is the configuration of the namespaces, at other addresses.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from tests.testbed.addresses import NAMES
from tests.testbed.certificates import make_certificates
from tests.testbed.errors import WorldError
from tests.testbed.load_balancer import haproxy_configuration
from tests.testbed.services import INGRESS_SERVICE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.testbed.addresses import Address

SETTINGS = Path(__file__).parent / "testbed.env"
_CERTIFICATE_DAYS = 3650


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Read testbed.env; a variable of the environment overrides it."""
    lines = SETTINGS.read_text(encoding="utf-8").splitlines()
    found = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {name: environment.get(name, value) for name, value in found.items()}


def node_addresses(count: int, pinned: Mapping[str, str]) -> dict[str, Address]:
    """Return the nodes' addresses by name, as the Vagrantfile gives them out."""
    return {
        f"node{number}": ip_address(f"{pinned['NODES_PREFIX']}{number}") for number in range(1, count + 1)
    }


def names_file(pinned: Mapping[str, str]) -> str:
    """Write dnsmasq's file of names: each is the load balancer's."""
    return "".join(f"{pinned['LB_ADDRESS']} {name}\n" for name in NAMES)


def haproxy_file(nodes: int, pinned: Mapping[str, str]) -> str:
    """Write the load balancer's haproxy.cfg."""
    service = replace(INGRESS_SERVICE.within((4,)), load_balancer_ips=(ip_address(pinned["LB_ADDRESS"]),))
    behind = {name: (address,) for name, address in node_addresses(nodes, pinned).items()}
    return haproxy_configuration(service, behind)


def main(args: Sequence[str] | None = None) -> int:
    """Write what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.testbed.vagrant.render", description=__doc__)
    files = parser.add_subparsers(dest="file", required=True)
    files.add_parser("names")
    files.add_parser("haproxy").add_argument("nodes", type=int)
    files.add_parser("certificates").add_argument("directory", type=Path)
    options = parser.parse_args(args)
    if options.file == "names":
        sys.stdout.write(names_file(settings()))
    elif options.file == "haproxy":
        sys.stdout.write(haproxy_file(options.nodes, settings()))
    else:
        try:
            make_certificates(options.directory, NAMES, days=_CERTIFICATE_DAYS)
        except WorldError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
