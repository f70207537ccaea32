"""Cables: a bridge in the fabric, a cable from it to every machine, and one from every pod to its node."""

import subprocess
from collections.abc import Mapping, Sequence

from tests.testbed.addresses import EVERY_LOAD_BALANCER_IP, PLACES, Address, Family, Network, Place, within
from tests.testbed.errors import WorldError
from tests.testbed.inside import inside
from tests.testbed.namespaces import Host

_BRIDGE = "fabric"


def connect(fabric: Host, hosts: Mapping[str, Host], families: tuple[Family, ...]) -> None:
    """Lay every cable of the address plan and set its addresses and routes, in these families.

    The fabric is the host that holds the bridge and nothing else.
    """
    outer = [place for place in PLACES if not place.behind]
    pods = [place for place in PLACES if place.behind]
    lines = [f"link add {_BRIDGE} type bridge", f"link set {_BRIDGE} up"]
    for place in outer:
        lines.append(f"link add {place.host} type veth peer name eth0 netns {hosts[place.host].pid}")
        lines.append(f"link set {place.host} master {_BRIDGE} up")
    run_ip(fabric, lines)
    for place in (*outer, *pods):
        lines = [_add(address, "eth0") for address in within(place.addresses, families)]
        lines.append("link set eth0 up")
        lines += [
            f"route add {to} {f'via {via}' if via else 'dev eth0'}" for to, via in _routes(place, families)
        ]
        for pod in pods:
            if pod.behind == place.host:
                lines.append(f"link add {pod.host} type veth peer name eth0 netns {hosts[pod.host].pid}")
                for to, via in _routes(pod, families):
                    lines.append(_add(f"{via}/{24 if to.version == 4 else 64}", pod.host))
                lines.append(f"link set {pod.host} up")
        if place.host == "lb":
            in_front = within(EVERY_LOAD_BALANCER_IP, families)
            lines += [f"address add {address}/{address.max_prefixlen} dev lo" for address in in_front]
        run_ip(hosts[place.host], lines)


def _routes(place: Place, families: tuple[Family, ...]) -> list[tuple[Network, Address | None]]:
    return [(to, via) for to, via in place.routes if to.version in families]


def _add(address: object, device: str) -> str:
    # No other host is on the cable, so an IPv6 address needs no second of duplicate detection first.
    return f"address add {address} dev {device}" + (" nodad" if ":" in str(address) else "")


def run_ip(host: Host, lines: Sequence[str]) -> None:
    """Run lines of `ip -batch` in a host's network, but with the machine's process ids.

    The far end of a cable is named by a process of its host, which a host's own process namespace hides.
    """
    with inside(host):
        done = subprocess.run(
            ["ip", "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise WorldError(f"{host.name}: ip -batch: {done.stderr}\n" + "\n".join(lines))
