"""Golden clusters: a folder a cluster, with what is expected of the plan written down.

A folder of tests/clusters/ holds `manifests/`, `config.yaml`, `node.yaml` (facts of the node) and
`expected.json`; config.yaml and node.yaml may be absent. `python -m tests.plan.golden` writes each
`expected.json` again: read its diff.
"""

import json
from ipaddress import ip_address, ip_interface
from pathlib import Path
from typing import Any

import msgspec
import yaml

from nodeagent.config.options import Config
from nodeagent.config.reading import read_config
from nodeagent.model.addresses import Endpoint, sort_key
from nodeagent.model.desired import Desired, HostsLine, LoadBalancerDecision, NameDecision
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsReply, Facts, InterfaceAddress, UserHostsLine
from nodeagent.plan.planner import plan
from nodeagent.sources.manifests import read_manifests
from tests.plan.made_up import endpoint

CLUSTERS = Path(__file__).parents[1] / "clusters"


_ANYWHERE = (ip_address("0.0.0.0"), ip_address("::"))


class NodeFile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """`node.yaml`: facts of the node, in the shortest form a person can read."""

    node_name: str = "node1"
    node_names: list[str] = []
    api_servers: list[str] = []
    """`192.0.2.5:443` or `[2001:db8::5]:443`."""
    api_server_names: list[str] = []
    addresses: list[str] = []
    """`198.51.100.11/24 on eth0`; our own relay addresses end in `, ours`."""
    taken_ports: list[int] = []
    user_names: dict[str, str] = {}
    """Name to `LINE ADDRESS`, with `by hairpin-proxy` behind it where that wrote the line."""
    short_circuited: list[str] = []
    """Addresses that the node's own Service rules catch."""
    dns: dict[str, str] = {}
    """Name to the addresses DNS answers, `198.51.100.4, 2001:db8::4`, or to another outcome, `nxdomain`."""
    standing_names: dict[str, str] = {}
    """Name to its addresses in the managed block as it is now."""

    def facts(self) -> Facts:
        """The facts, as the planner takes them."""
        return Facts(
            node_name=self.node_name,
            node_names=frozenset({self.node_name, *self.node_names}),
            addresses=tuple(_interface_address(text) for text in self.addresses),
            api_servers=frozenset(map(endpoint, self.api_servers)),
            api_server_names=frozenset(self.api_server_names),
            port_holders={Endpoint(anywhere, port): 0 for anywhere in _ANYWHERE for port in self.taken_ports},
            user_names={name: _hosts_line(text) for name, text in self.user_names.items()},
            short_circuited=frozenset(map(ip_address, self.short_circuited)),
            standing_names={
                name: frozenset(map(ip_address, text.split(", ")))
                for name, text in self.standing_names.items()
            },
            dns={name: _dns_answer(text) for name, text in self.dns.items()},
        )


def clusters() -> list[Path]:
    """The folders, in the order of their names."""
    return sorted(path for path in CLUSTERS.iterdir() if path.is_dir())


def planned(cluster: Path) -> Desired:
    """The plan for one of them."""
    node_file = cluster / "node.yaml"
    given = yaml.safe_load(node_file.read_text(encoding="utf-8")) if node_file.exists() else {}
    facts = msgspec.convert(given, NodeFile).facts()
    config_file = cluster / "config.yaml"
    config = read_config(config_file) if config_file.exists() else Config()
    relay = config.relay
    snapshot = read_manifests(
        cluster / "manifests",
        facts.node_name,
        (relay.service.namespace, relay.service.name) if relay.kind == "service" else None,
    )
    return plan(snapshot, facts, config)


def readable(desired: Desired) -> dict[str, Any]:
    """The plan as a person reviews it: a line a thing."""
    return {
        "loadBalancers": [
            {
                "is": str(decision.load_balancer),
                "status": _status(decision),
                "relay": [str(address) for address in decision.relay_addresses],
                "remarks": list(decision.remarks),
            }
            for decision in desired.load_balancers
        ],
        "names": {f"{decision.name}, {_claim(decision)}": _status(decision) for decision in desired.names},
        "listeners": [f"{each.bind} -> {each.server} {each.proxy}" for each in desired.listeners],
        "redirects": [f"{each.match} -> {each.to}" for each in desired.dnat.redirects],
        "podCIDRs": [str(network) for network in desired.dnat.pods],
        "hosts": [f"{line.address} {line.name}" for line in sorted(desired.hosts, key=_by_address)],
        "unreadable": [f"{Path(entry.where).name}: {entry.reason}" for entry in desired.unreadable],
        "remarks": list(desired.remarks),
    }


def expected(cluster: Path) -> Any:  # noqa: ANN401 - JSON
    """What was written down."""
    return json.loads((cluster / "expected.json").read_text(encoding="utf-8"))


def write_down(cluster: Path) -> None:
    """Makes what is planned now what is expected from now on."""
    text = json.dumps(readable(planned(cluster)), indent=2, ensure_ascii=False)
    (cluster / "expected.json").write_text(f"{text}\n", encoding="utf-8")


def _by_address(line: HostsLine) -> tuple[object, ...]:
    return (*sort_key(line.address), line.name)


def _claim(decision: NameDecision) -> str:
    """Who asks; and of whom, where one object asks for a name of two load balancers."""
    twice = decision.code == "OtherLoadBalancer" and decision.load_balancer
    return f"{decision.claimed_by} of {twice.path}" if twice else str(decision.claimed_by)


def _status(decision: LoadBalancerDecision | NameDecision) -> str:
    return f"{decision.status} ({decision.code}): {decision.reason}"


def _dns_answer(text: str) -> DnsAnswer:
    if text in {outcome.value for outcome in DnsOutcome}:
        reply = DnsReply(DnsOutcome(text), trouble="" if DnsOutcome(text).tells else f"192.0.2.53: {text}")
    else:
        reply = DnsReply(DnsOutcome.ADDRESSES, tuple(map(ip_address, text.split(", "))))
    return DnsAnswer(reply, reply if reply.outcome.tells else None)


def _interface_address(text: str) -> InterfaceAddress:
    where, _, ours = text.partition(", ")
    address, _, interface = where.partition(" on ")
    standing = ip_interface(address)
    return InterfaceAddress(standing.ip, standing.network.prefixlen, interface, ours=ours == "ours")


def _hosts_line(text: str) -> UserHostsLine:
    number, _, rest = text.partition(" ")
    address, _, by = rest.partition(" ")
    return UserHostsLine(int(number), address, by_hairpin_proxy=by == "by hairpin-proxy")


if __name__ == "__main__":
    for each in clusters():
        write_down(each)
        print(each.name)
