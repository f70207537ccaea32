from pathlib import Path

import pytest

from nodeagent.config.reading import parse_config
from nodeagent.model.facts import Upstreams
from nodeagent.sources.upstream_dns import find_upstreams
from tests.cases import cases_of

STUB = "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch example.org\n"
CLUSTER = (
    "search nodeagent.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\n"
    "options ndots:5\n"
)


class NodeRoot:
    """A node's files below the directory that is its `/`, as a container sees them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.own = root / "container" / "etc" / "resolv.conf"
        self.resolv_conf = root / "etc" / "resolv.conf"
        for directory in (self.own.parent, self.resolv_conf.parent):
            directory.mkdir(parents=True)

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def found(self, more: str = "") -> Upstreams:
        """What is found now, with more in the section `hosts` of the configuration."""
        config = parse_config(f"hosts: {{file: {self.root}/etc/hosts, {more}}}", "test.yaml")
        return find_upstreams(config.hosts, self.own)

    def servers(self, more: str = "") -> list[str]:
        return [str(server) for server in self.found(more).servers]


@pytest.fixture
def node(tmp_path: Path) -> NodeRoot:
    return NodeRoot(tmp_path)


def test_the_nodes_own_servers_are_asked_in_their_order(node: NodeRoot) -> None:
    """What is no server line, or no address, is passed over; more than three the C libraries don't ask."""
    node.resolv_conf.write_text(
        "# nameserver 192.0.2.99\n;nameserver 192.0.2.98\nnameserver\nnameserver dns.example.com\n"
        "nameserver 192.0.2.53\n  nameserver\t2001:db8::53  # the second\nnameserver 192.0.2.53\n"
        "nameserver fe80::53%eth0\nnameserver 192.0.2.4\nsearch example.org\n",
        encoding="utf-8",
    )
    assert node.servers() == ["192.0.2.53:53", "[2001:db8::53]:53", "[fe80::53%eth0]:53"]


def test_a_changed_file_is_seen_at_once(node: NodeRoot) -> None:
    """As a DHCP client rewrites it. Unbound, or NetworkManager's dnsmasq, is a server like any other."""
    node.resolv_conf.write_text("nameserver 192.0.2.53\n", encoding="utf-8")
    assert node.servers() == ["192.0.2.53:53"]
    node.resolv_conf.write_text("nameserver 127.0.0.1\nnameserver ::1\n", encoding="utf-8")
    assert node.servers() == ["127.0.0.1:53", "[::1]:53"]


def test_servers_of_the_configuration_are_asked_instead(node: NodeRoot) -> None:
    """Whatever the node's file says, even systemd-resolved's stub if the option names it."""
    node.resolv_conf.write_text("nameserver 192.0.2.53\n", encoding="utf-8")
    given = "dnsServers: [192.0.2.1, '192.0.2.2:5353', '2001:db8::53', '[2001:db8::54]:5353', 127.0.0.53]"
    assert node.servers(given) == [
        "192.0.2.1:53",
        "192.0.2.2:5353",
        "[2001:db8::53]:53",
        "[2001:db8::54]:5353",
        "127.0.0.53:53",
    ]


def test_a_chain_of_links_never_leads_out_of_the_nodes_root(node: NodeRoot) -> None:
    """Each is absolute: what opened the last one itself would read the container's file."""
    (outside := node.root.parent / "outside").write_text("nameserver 192.0.2.99\n", encoding="utf-8")
    for number in range(60):
        (node.root / f"link{number}").symlink_to(f"/link{number + 1}" if number < 59 else outside)
    node.resolv_conf.symlink_to("/link55")
    assert not node.servers()
    node.write(str(outside)[1:], "nameserver 192.0.2.53\n")
    assert node.servers() == ["192.0.2.53:53"]
    node.resolv_conf.unlink()
    node.resolv_conf.symlink_to("/link10")
    assert "can't be read: Too many levels of symbolic links" in node.found().problem


_TEXTS = {"real": "nameserver 192.0.2.53\nnameserver 192.0.2.54\n", "stub": STUB}
_TEXTS["other"] = "nameserver 127.0.0.54\nnameserver 127.0.0.53\n"
_CASES = cases_of(__file__, "cases.yaml")["upstreams"]


@pytest.mark.parametrize(("link", "leads_to", "files"), _CASES.values(), ids=_CASES)
def test_the_real_servers_are_asked_wherever_the_file_leads(
    node: NodeRoot, link: str, leads_to: str, files: dict[str, str]
) -> None:
    for path, text in files.items():
        node.write(path, _TEXTS[text])
    if link:
        (node.root / link).symlink_to(leads_to)
    assert node.servers() == ["192.0.2.53:53", "192.0.2.54:53"]


def test_the_clusters_own_dns_is_never_asked(node: NodeRoot) -> None:
    """It may answer with nodeagent's own entries."""
    node.resolv_conf.write_text(STUB, encoding="utf-8")
    node.own.write_text(CLUSTER, encoding="utf-8")
    assert node.found().servers == ()
    problem = node.found().problem
    for word in (
        "systemd-resolved",
        "run/systemd/resolve/resolv.conf",
        "the cluster's own DNS",
        "hosts.dnsServers",
    ):
        assert word in problem


@pytest.mark.parametrize("text", ["", "# No DNS servers known.\n", "nameserver localhost\n", "\xff\x00"])
def test_a_file_without_a_server_is_reported(node: NodeRoot, text: str) -> None:
    """The C libraries would ask 127.0.0.1, where mostly no server answers."""
    node.resolv_conf.write_text(text, encoding="latin-1")
    assert node.found().servers == ()
    assert f"{node.resolv_conf} names no server" in node.found().problem


def test_links_in_a_circle_are_reported(node: NodeRoot) -> None:
    node.resolv_conf.symlink_to("resolv.conf")
    assert f"{node.resolv_conf} can't be read: Too many levels of symbolic links" in node.found().problem


def test_a_link_does_not_lead_out_of_the_nodes_root(node: NodeRoot) -> None:
    (node.root / "outside").write_text("nameserver 203.0.113.66\n", encoding="utf-8")
    node.write("outside", "nameserver 192.0.2.53\n")
    node.resolv_conf.symlink_to("../../../../../../../../outside")
    assert node.servers() == ["192.0.2.53:53"]
