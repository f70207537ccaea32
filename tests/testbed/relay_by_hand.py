"""What nodeagent is to do for a node, done manually: the testbed is verified without it."""

from __future__ import annotations

from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address
from itertools import product
from typing import TYPE_CHECKING

from tests.testbed import addresses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.testbed.namespaces import Host
    from tests.testbed.world import World

_RELAY: dict[addresses.Family, addresses.Address] = {
    4: IPv4Address("169.254.66.5"),
    6: IPv6Address("fd68:6169:7270::5"),
}


@contextmanager
def relay_by_hand(world: World, host: Host, directory: Path) -> Iterator[None]:
    """Give a node relay addresses, HAProxy on them, and DNAT to them, as long as this lasts."""
    ports = tuple(port.port for port in world.service.ports)
    relays = {family: _RELAY[family] for family in world.families}
    configuration = [
        "defaults",
        "  mode tcp",
        "  timeout connect 3s",
        "  timeout client 1m",
        "  timeout server 1m",
    ]
    for cluster_ip, port in product(world.service.cluster_ips, ports):
        configuration += [
            f"listen relay-{port}-{cluster_ip.version}",
            f"  bind {addresses.bracketed(relays[cluster_ip.version])}:{port}",
            f"  server ingress {addresses.bracketed(cluster_ip)}:{port} send-proxy",
        ]
    file = directory / "relay.cfg"
    file.write_text("\n".join(configuration) + "\n", encoding="ascii")
    for relay in relays.values():
        # Not preferred, so that it is not the source of other traffic.
        host.run(["ip", "address", "add", str(relay), "dev", "lo", "preferred_lft", "0"])
    haproxy = host.popen(["haproxy", "-db", "-f", file], log="relay")
    try:
        for port in ports:
            host.await_port(port, haproxy)
        host.run(["nft", "-f", "-"], stdin=_table(world, host, relays))
        yield
        host.run(["nft", "delete", "table", "inet", "hand"])
    finally:
        haproxy.stop()
        for relay in relays.values():
            host.run(["ip", "address", "del", f"{relay}/{relay.max_prefixlen}", "dev", "lo"])


def _table(world: World, host: Host, relays: dict[addresses.Family, addresses.Address]) -> str:
    maps, output, prerouting = [], [], []
    for ip in world.service.load_balancer_ips:
        family, address = ("ip", "ipv4_addr") if ip.version == 4 else ("ip6", "ipv6_addr")
        ports = [port.port for port in world.service.ports]
        elements = ", ".join(f"{ip} . {port} : {relays[ip.version]} . {port}" for port in ports)
        kind = f"{address} . inet_service : {address} . inet_service"
        maps.append(f"map lb{ip.version} {{ type {kind}; elements = {{ {elements} }}; }}")
        dnat = f"meta l4proto tcp dnat {family} to {family} daddr . tcp dport map @lb{ip.version}"
        output.append(dnat)
        pod = world.address({"node1": world.pod1, "node2": world.pod2}[host.name], ip.version)
        prerouting.append(f"{family} saddr {pod} {dnat}")
    lines = [
        *("table inet hand {", *maps),
        *("chain output {", "type nat hook output priority -105", *output, "}"),
        *("chain prerouting {", "type nat hook prerouting priority -105", *prerouting, "}"),
        "}",
    ]
    return "\n".join(lines) + "\n"
