"""Whether IPv6 is switched off, and by what."""

from contextlib import closing
from pathlib import Path

from nodeagent.sources.node.identity import ipv6_switched_off
from tests.components.dnat.network import Namespace
from tests.root import needs_root


@needs_root
def test_the_sysctl_is_named() -> None:
    """That of the device, or of a new one, in this network namespace, whatever that of another is."""
    with closing(Namespace()) as namespace:
        with namespace.inside():
            assert ipv6_switched_off("hairpin0") == ipv6_switched_off("lo") == ""
        namespace.sysctl("net/ipv6/conf/default/disable_ipv6", "1")
        with namespace.inside():
            assert ipv6_switched_off("hairpin0") == "sysctl net.ipv6.conf.default.disable_ipv6"
            assert ipv6_switched_off("lo") == ""
        namespace.sysctl("net/ipv6/conf/all/disable_ipv6", "1")
        with namespace.inside():
            assert ipv6_switched_off("lo") == "sysctl net.ipv6.conf.lo.disable_ipv6"


def test_a_kernel_without_ipv6_is_known_by_what_it_lacks(tmp_path: Path) -> None:
    """No file of IPv6's in /proc/net."""
    assert ipv6_switched_off("hairpin0", tmp_path) == "ipv6.disable=1, or a kernel without IPv6"


def test_a_hidden_sysctl_says_nothing(tmp_path: Path) -> None:
    """The addresses show it then."""
    (tmp_path / "thread-self" / "net").mkdir(parents=True)
    (tmp_path / "thread-self" / "net" / "if_inet6").touch()
    assert ipv6_switched_off("hairpin0", tmp_path) == ""
