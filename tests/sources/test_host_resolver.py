"""From within a container the node's own hosts file decides first, as it does for the node's programs."""

from ipaddress import ip_address
from pathlib import Path

import pytest

from nodeagent.config.option_types import AbsolutePath, DnsServer
from nodeagent.config.options import HostsOptions
from nodeagent.sources.node import environment
from nodeagent.sources.node.environment import resolve
from tests.dns.made_up_server import MadeUpServer
from tests.dns.test_asking import zone


def test_the_nodes_hosts_file_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "# 192.0.2.7 site.example.test\n"
        "nonsense site.example.test\n"
        "192.0.2.8\tSite.example.test other # site\n"
        "2001:db8::8 site.example.test\n",
        encoding="ascii",
    )
    options = HostsOptions(file=AbsolutePath(file))
    assert resolve(options, "site.example.test") == (ip_address("192.0.2.8"), ip_address("2001:db8::8"))
    assert resolve(options, "other") == (ip_address("192.0.2.8"),)
    assert ip_address("127.0.0.1") in resolve(options, "localhost"), "else the C library is asked"
    assert resolve(options, "a..b") == ()
    assert resolve(HostsOptions(file=AbsolutePath(tmp_path / "absent")), "a..b") == ()


def test_a_line_that_only_the_containers_copy_has_is_none_of_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet makes the copy when the container starts: the line may have been withdrawn since."""
    (tmp_path / "node").write_text("127.0.0.1 localhost\n", encoding="ascii")
    (tmp_path / "own").write_text("169.254.66.7 site.example.test\n", encoding="ascii")
    monkeypatch.setattr(environment, "_OWN_HOSTS", tmp_path / "own")
    with MadeUpServer(zone("site.example.test. 60 A 192.0.2.9")) as server:
        servers = (DnsServer(str(server.endpoint)),)
        options = HostsOptions(file=AbsolutePath(tmp_path / "node"), dns_servers=servers)
        assert resolve(options, "site.example.test") == (ip_address("192.0.2.9"),)
