"""What nodeagent manages on a node, read from the kernel and from the hosts file, not from nodeagent."""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_address

from tests.testbed.errors import WorldError
from tests.testbed.inside import inside
from tests.testbed.namespaces import Host

RELAY_RANGE = IPv4Network("169.254.66.0/24")

_BEGIN, _END = "# BEGIN nodeagent", "# END nodeagent"
_ELEMENT = re.compile(r'([\d.]+) \. (\d+)(?: comment "[^"]*")? : ([\d.]+) \. (\d+)')


@dataclass(frozen=True)
class ManagedState:
    """The redirects (load balancer to relay), the hostnames with their addresses, and the relay addresses."""

    redirects: Mapping[str, str]
    names: Mapping[str, str]
    addresses: frozenset[str]


def read_managed_state(node: Host) -> ManagedState:
    return ManagedState(redirects(node), names(node), relay_addresses(node))


def redirects(node: Host) -> dict[str, str]:
    """Return the elements of the DNAT map, `address:port` to `address:port`; none without the table."""
    listing = _nft(node, "list", "map", "inet", "nodeagent", "lb4")
    return {f"{match[1]}:{match[2]}": f"{match[3]}:{match[4]}" for match in _ELEMENT.finditer(listing)}


def table(node: Host) -> str:
    """Return the whole table with the kernel's handles: the same text means that nothing was rewritten."""
    return _nft(node, "--handle", "list", "table", "inet", "nodeagent")


def structure(node: Host) -> str:
    """Return the table's chains, rules, maps and sets without the elements; empty without the table."""
    return _nft(node, "--terse", "list", "table", "inet", "nodeagent")


def names(node: Host) -> dict[str, str]:
    block = hosts_lines(node.read_hosts())[1]
    return {name: address for address, _, name in (line.partition("\t") for line in block)}


def user_lines(node: Host) -> list[str]:
    return hosts_lines(node.read_hosts())[0]


def hosts_inode(node: Host) -> tuple[int, int]:
    """Return the hosts file's inode and the time of its last change: the same if no process wrote it."""
    status = (node.etc / "hosts").stat()
    return status.st_ino, status.st_mtime_ns


def metadata_of(node: Host, path: str) -> str:
    """Return what must not change of a file that is replaced: mode, owner, ACL and extended attributes."""
    return node.run(
        ["sh", "-c", 'stat --format="%a %u:%g" "$1"; getfattr --absolute-names -d -m - "$1"', "sh", path]
    ).stdout


def relay_addresses(node: Host) -> frozenset[str]:
    with inside(node):
        done = subprocess.run(["ip", "-json", "address"], capture_output=True, text=True, check=True)
    return frozenset(
        entry["local"]
        for link in json.loads(done.stdout)
        for entry in link["addr_info"]
        if ip_address(entry["local"]) in RELAY_RANGE
    )


def hosts_lines(content: bytes) -> tuple[list[str], list[str]]:
    """Return the user's lines and the block's; a block that is not whole is an error. Pure."""
    users: list[str] = []
    block: list[str] = []
    within = False
    for line in content.decode("utf-8").splitlines():
        if line.startswith(_BEGIN) and not within:
            within = True
        elif line == _END and within:
            within = False
        else:
            (block if within else users).append(line)
    if within:
        raise WorldError(f"a block without an end in the hosts file: {block}")
    return users, block


def _nft(node: Host, *arguments: str) -> str:
    with inside(node):
        done = subprocess.run(["nft", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if "No such file or directory" in done.stderr:
            return ""
        raise WorldError(f"{node.name}: nft {arguments}: {done.stderr}")
    return done.stdout
