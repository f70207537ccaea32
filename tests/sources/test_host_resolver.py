"""From within a container the node's own hosts file decides first, as it does for the node's programs."""

from ipaddress import ip_address
from pathlib import Path

from nodeagent.sources.node.environment import resolve


def test_the_nodes_hosts_file_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "# 192.0.2.7 site.example.test\n"
        "nonsense site.example.test\n"
        "192.0.2.8\tSite.example.test other # site\n"
        "2001:db8::8 site.example.test\n",
        encoding="ascii",
    )
    assert resolve(file, "site.example.test") == (ip_address("192.0.2.8"), ip_address("2001:db8::8"))
    assert resolve(file, "other") == (ip_address("192.0.2.8"),)
    assert ip_address("127.0.0.1") in resolve(file, "localhost"), "else the C library is asked"
    assert resolve(file, "a..b") == ()
    assert resolve(tmp_path / "absent", "a..b") == ()
