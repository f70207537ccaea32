"""What of a node nodeagent changes: read whole, so that before and after can be compared."""

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tests.testbed.namespaces import Host
from tests.testbed.waiting import wait_until

# iptables-save prints the date, and counts the packets of each chain.
_COMMENT = re.compile(r"^#.*\n", re.MULTILINE)
_COUNTERS = re.compile(r"\[\d+:\d+\]")
# A legacy table that was asked for once is there for good, empty.
_EMPTY_TABLE = re.compile(r"^\*\w+\n(?::\w+ ACCEPT .*\n)*COMMIT\n", re.MULTILINE)
_END = "\x1f\n"
_READ = Path(__file__).with_name("read_state.sh").read_text("utf-8")


@dataclass(frozen=True)
class NodeState:
    """A node's hosts file (its bytes, mode and owner), rules, addresses, routes, and runtime directories."""

    hosts: tuple[bytes, str]
    ruleset: str
    iptables: str
    addresses: str
    routes: str
    runtime: str

    def differences(self, other: "NodeState") -> list[str]:
        return [
            f"{field.name}:\n--- before\n{ours}\n--- after\n{theirs}"
            for field in fields(self)
            if (ours := getattr(self, field.name)) != (theirs := getattr(other, field.name))
        ]


def read_state(host: Host) -> NodeState:
    """Read a node's state, once the kernel has settled its link-local addresses."""
    wait_until(lambda: _settled(host), f"{host.name}'s link-local addresses having settled")

    said = host.run(["sh", "-c", _READ]).stdout.split(_END)
    access, ruleset, saved, addresses, routes, runtime, _ = said
    return NodeState(
        hosts=(host.read_hosts(), access),
        ruleset=ruleset,
        iptables=_EMPTY_TABLE.sub("", _COUNTERS.sub("", _COMMENT.sub("", saved))),
        addresses=addresses,
        routes=routes,
        runtime=runtime,
    )


def living_processes(host: Host, name: str) -> list[str]:
    """List a host's processes of that name by id and command line, without those that are dead already."""
    lines = host.run(["ps", "-C", name, "-o", "stat=,pid=,args="], check=False).stdout.splitlines()
    return [line.split(maxsplit=1)[1] for line in lines if not line.startswith("Z")]


def _settled(host: Host) -> bool:
    """Return whether each cable has its link-local address and no duplicate detection is under way."""
    links: list[dict[str, Any]] = json.loads(host.run(["ip", "-json", "address"]).stdout)
    if not any(address["family"] == "inet6" for link in links for address in link["addr_info"]):
        return True  # IPv6 is switched off: even `lo` has none.
    return all(
        any(address["scope"] == "link" for address in link["addr_info"])
        and not any("tentative" in address for address in link["addr_info"])
        for link in links
        if "UP" in link["flags"] and "LOOPBACK" not in link["flags"] and link.get("link_type") == "ether"
    )
