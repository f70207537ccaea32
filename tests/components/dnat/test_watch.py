import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nodeagent.components.dnat import iptables
from nodeagent.components.dnat.iptables import IptablesBackend, XtablesWatch
from nodeagent.components.dnat.nftables import NftablesBackend, NftablesWatch
from tests.cases import cases_of
from tests.components.converging import seen
from tests.components.dnat.network import Namespace, become_nobody
from tests.components.dnat.world import apply, guarded
from tests.isolation import isolated

FOREIGN = "table inet kube-proxy {\n set s { type ipv4_addr; }\n}\n"
CHAIN = "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n"
LOCKED = "a program took the lock of iptables' tables"


@pytest.fixture
def nftables(node: Namespace) -> Iterator[NftablesWatch]:
    """It begins when the rules are there."""
    apply(NftablesBackend(), guarded())
    with closing(NftablesBackend().watch()) as made:
        yield made


@pytest.fixture
def legacy() -> Iterator[XtablesWatch]:
    """There is no lock file yet, as after a boot."""
    with closing(IptablesBackend().watch()) as made:
        yield made


@pytest.mark.parametrize("commands", cases_of(__file__, "cases.yaml")["seen"])
def test_a_change_is_seen_with_who_made_it(node: Namespace, nftables: NftablesWatch, commands: str) -> None:
    node.nft(commands)
    assert nftables.drain().startswith("table inet nodeagent was changed by nft, process ")
    assert nftables.drain() == ""


def test_other_tables_are_not(node: Namespace, nftables: NftablesWatch) -> None:
    elements = ", ".join(f"10.0.{each // 256}.{each % 256}" for each in range(5000))
    node.nft(FOREIGN)
    node.nft(f"add element inet kube-proxy s {{ {elements} }}")
    node.nft("table ip nodeagent {\n chain c { }\n}\n")
    node.nft('table inet other {\n chain c { tcp dport 1 accept comment "nodeagent"\n }\n}\n')
    node.nft("delete table ip nodeagent\ndelete table inet other\nflush set inet kube-proxy s")
    assert nftables.drain() == ""


def test_lost_notifications_of_nftables_are_an_error(node: Namespace, nftables: NftablesWatch) -> None:
    source = nftables._source  # noqa: SLF001 - at its full size, it takes too long to fill
    source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    for number in range(50):
        node.nft(f"add table inet t{number}")
    with pytest.raises(OSError, match="No buffer space"):
        nftables.drain()


@isolated
def test_without_the_right_to_listen_there_is_no_watch() -> None:
    NftablesWatch().close()  # who may not be able to read the modules that the first one imports
    become_nobody()
    with pytest.raises(PermissionError):
        NftablesWatch()


def test_whatever_takes_the_lock_is_seen(node: Namespace, legacy: XtablesWatch, own_lock: Path) -> None:
    """Whether or not its file was there, and after another one has replaced it."""
    assert not own_lock.exists()
    for family in (4, 6, 4):
        node.legacy(CHAIN, family=family)
        assert seen(legacy) == LOCKED
        legacy.drain()
        own_lock.unlink(missing_ok=family == 4)
    other = own_lock.with_suffix(".new")
    other.touch()
    other.rename(own_lock)
    legacy.drain()
    node.legacy(CHAIN)
    assert seen(legacy) == LOCKED


def test_one_that_takes_no_lock_is_found(legacy: XtablesWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    assert legacy.drain() == ""
    monkeypatch.setattr(iptables, "_LOOK_SECONDS", 0.0)
    assert legacy.drain() == "an occasional look at iptables' tables"
