"""Writes the testbed's configuration files for the virtual machines, with Python's standard library alone.

    python3 -m tests.testbed.vagrant.render names|haproxy NODES|certificates DIRECTORY

It is the configuration of the namespaces, at other addresses.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from tests.testbed.addresses import NAMES
from tests.testbed.certificates import make_certificates
from tests.testbed.errors import WorldError
from tests.testbed.ingress import haproxy_configuration
from tests.testbed.services import INGRESS_SERVICE

if TYPE_CHECKING:
    from collections.abc import Mapping

_CERTIFICATE_DAYS = 3650


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Read testbed.env; a variable of the environment overrides it."""
    lines = Path(__file__).with_name("testbed.env").read_text(encoding="utf-8").splitlines()
    found = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {name: environment.get(name, value) for name, value in found.items()}


def main() -> int:
    pinned = settings()
    match sys.argv[1:]:
        case ["names"]:
            print(*(f"{pinned['LB_ADDRESS']} {name}" for name in NAMES), sep="\n")
        case ["haproxy", count]:
            address = ip_address(pinned["LB_ADDRESS"])
            service = replace(INGRESS_SERVICE.within((4,)), load_balancer_ips=(address,))
            # As the Vagrantfile gives them out.
            numbers = range(1, int(count) + 1)
            nodes = {f"node{number}": [ip_address(f"{pinned['NODES_PREFIX']}{number}")] for number in numbers}
            sys.stdout.write(haproxy_configuration(service, nodes))
        case ["certificates", directory]:
            try:
                make_certificates(Path(directory), NAMES, days=_CERTIFICATE_DAYS)
            except WorldError as error:
                print(error, file=sys.stderr)
                return 1
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
