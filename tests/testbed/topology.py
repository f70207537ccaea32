"""Cables: a bridge in the fabric, a cable from it to every machine, and one from every pod to its node."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.testbed.addresses import LOAD_BALANCER_IPS, PLACES
from tests.testbed.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.testbed.addresses import Place
    from tests.testbed.namespaces import Host

_BRIDGE = "fabric"


def connect(fabric: Host, hosts: Mapping[str, Host]) -> None:
    """Lay every cable of the address plan and set addresses and routes.

    Args:
        fabric: The host that holds the bridge and nothing else.
        hosts: The others, by the names they have in the plan.
    """
    outer = [place for place in PLACES if place.behind is None]
    pods = [place for place in PLACES if place.behind is not None]
    lines = [f"link add {_BRIDGE} type bridge", f"link set {_BRIDGE} up"]
    for place in outer:
        lines.append(f"link add {place.host} type veth peer name eth0 netns {hosts[place.host].pid}")
        lines.append(f"link set {place.host} master {_BRIDGE} up")
    run_ip(fabric, lines)
    for place in pods:
        run_ip(hosts[place.behind or ""], _pod_cable(place, hosts[place.host].pid))
    for place in PLACES:
        run_ip(hosts[place.host], _addresses(place))
    run_ip(
        hosts["lb"],
        [f"address add {address}/{address.max_prefixlen} dev lo" for address in LOAD_BALANCER_IPS],
    )


def _pod_cable(place: Place, pid: int) -> list[str]:
    lines = [f"link add {place.host} type veth peer name eth0 netns {pid}"]
    lines += [f"address add {gateway} dev {place.host}" for gateway in place.gateways]
    return [*lines, f"link set {place.host} up"]


def _addresses(place: Place) -> list[str]:
    lines = [f"address add {address} dev eth0" for address in place.addresses]
    lines.append("link set eth0 up")
    return [*lines, *(f"route add {route.destination} {route.hop}" for route in place.routes)]


def run_ip(host: Host, lines: Sequence[str]) -> None:
    """Run lines of `ip -batch` in a host's network, but with the machine's process ids.

    The far end of a cable is named by a process of its host, which a host's own process namespace hides.
    """
    done = subprocess.run(
        ["nsenter", f"--target={host.pid}", "--net", "--", "ip", "-batch", "-"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise WorldError(f"{host.name}: ip -batch: {done.stderr}\n" + "\n".join(lines))
