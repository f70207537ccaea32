"""Fixtures: the machines lb, cp and node1, with a network between them and nothing beyond."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.testbed import private_etc
from tests.testbed.namespaces import Host
from tests.testbed.topology import run_ip
from tests.testbed.vagrant.machine_root import MachineRoot
from tests.testbed.vagrant.render import node_addresses, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@pytest.fixture(scope="module")
def machines(as_root: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, MachineRoot]]:
    """The machines by name, as Debian installs them: nothing is provisioned yet."""
    directory = tmp_path_factory.mktemp("machines")
    pinned = settings({})
    addresses = {
        "lb": pinned["LB_ADDRESS"],
        "cp": pinned["CP_ADDRESS"],
        "node1": str(node_addresses(1, pinned)["node1"]),
    }
    (directory / "logs").mkdir()
    (directory / "no-ca").write_text("", encoding="ascii")
    with ExitStack() as stack:
        hosts = {}
        for name in ("wire", *addresses):
            etc = directory / f"etc-{name}"
            private_etc.fill(etc, name, (), node_addresses(1, pinned)["node1"], directory / "no-ca")
            hosts[name] = stack.enter_context(Host(name, etc, directory / "logs"))
        lines = ["link add wire type bridge", "link set wire up"]
        for name in addresses:
            lines.append(f"link add {name} type veth peer name eth1 netns {hosts[name].pid}")
            lines.append(f"link set {name} master wire up")
        run_ip(hosts["wire"], lines)
        for name, address in addresses.items():
            run_ip(hosts[name], [f"address add {address}/24 dev eth1", "link set eth1 up"])
        yield {name: MachineRoot(hosts[name], directory / name) for name in addresses}
