"""A busy agent in a machine whose power is cut, and what is found after the next boot: `make test-power`.

    python -m tests.testbed.power_cut busy      change the cluster until the power is cut; print each change
    python -m tests.testbed.power_cut heal      look at /etc/hosts, then let an agent heal the node

With `in-place` after it, /etc/hosts is mounted alone, so that the agent can't replace it.

It writes to the machine's own /etc/hosts: it is run by tests/testbed/kernels/inside, nowhere else.
"""

import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.request import urlopen

from tests.apiserver import ApiServer
from tests.apiserver.objects import objects_under
from tests.daemon.made_objects import change_cluster, ingress, write_config
from tests.daemon.managed_state import hosts_lines
from tests.testbed import addresses
from tests.testbed.errors import NotObservedError, WorldError
from tests.testbed.forked import PYTHON
from tests.testbed.waiting import wait_until
from tests.testbed.world import MANIFESTS

_HOSTS = Path("/etc/hosts")
_NEW = "new.example.test"
_SECONDS = 60.0
_CHANGE_SECONDS = 0.02
_READY = "http://127.0.0.1:9467/readyz"
_NETWORK = (
    "ip link add eth0 type veth peer name switch",
    f"ip address add {addresses.NODE1}/24 dev eth0",
    "ip link set switch up",
    "ip link set eth0 up",
)
_USERS = [
    "127.0.0.1\tlocalhost",
    *(f"10.9.{number}.1   user-{number}.example.net  # line {number}" for number in range(40)),
    "# the end of the administrator's lines",
]


def main() -> int:
    """Do what the command line says; the last line printed begins with `result:`, unless the power is cut."""
    task, *mounted = sys.argv[1:]
    for command in (*_NETWORK, *([f"mount --bind {_HOSTS} {_HOSTS}"] if mounted else [])):
        subprocess.run(command.split(), check=True)
    if task == "busy":
        _be_busy()
    try:
        print(f"result: passed, found {_look(may_be_torn=bool(mounted))}; {_heal()}", flush=True)
    except Exception as error:  # noqa: BLE001 - whatever it is, the console is the only place to report it
        print(f"result: failed, {error}", flush=True)
        return 1
    return 0


def _be_busy() -> None:
    _HOSTS.write_text("".join(f"{line}\n" for line in _USERS), encoding="ascii")
    dice = random.Random(4711)  # noqa: S311 - a test's dice
    with _running_agent() as api, Path("/etc/changes").open("w") as unflushed:
        # The file has several pages, of which all from the first change on are written.
        api.store.create(ingress("many", [f"site-{number}.example.test" for number in range(300)]))
        wait_until(_ready, "an agent that is ready", seconds=_SECONDS)
        for number in count(1):
            change_cluster(api.store, dice)
            print("change", number, flush=True)
            print("change", number, file=unflushed, flush=True)
            time.sleep(_CHANGE_SECONDS)


def _look(*, may_be_torn: bool) -> str:
    """Check /etc/hosts as the power cut left it; a block that was written in place may be torn."""
    try:
        users, block = hosts_lines(_HOSTS.read_bytes())
    except WorldError:
        if not may_be_torn:
            raise
        return "a torn block"
    torn = not all(len(line.split()) == 2 for line in block)
    if users != _USERS or (torn and not may_be_torn):
        expected = "the administrator's lines, and a block of addresses with a name each"
        raise NotObservedError(expected, str(_HOSTS.read_bytes()))
    if torn:
        return "a torn block"
    return f"a block of {len(block)} names and {len(_drafts())} drafts"


def _heal() -> str:
    began = time.monotonic()
    with _running_agent() as api:
        # Something to write, in any case: a write removes the drafts that earlier ones left.
        api.store.create(ingress("new", [_NEW]))
        wait_until(_ready, "an agent that is ready", seconds=_SECONDS)
        wait_until(_healed, "hostnames that lead to a relay that answers", seconds=_SECONDS)
        seconds = time.monotonic() - began
    if _drafts():
        raise NotObservedError(f"no draft next to {_HOSTS}", str(_drafts()))
    return f"healed {seconds:.1f} s after the agent's start"


def _healed() -> bool:
    users, block = hosts_lines(_HOSTS.read_bytes())
    found = {name: address for address, name in map(str.split, block)}
    whole = users == _USERS and set(found) == {addresses.SITE, addresses.REGISTRY, _NEW}
    return whole and all(map(_accepts, found.values()))


def _accepts(address: str) -> bool:
    try:
        socket.create_connection((address, 443), timeout=5).close()
    except OSError:
        return False
    return True


def _ready() -> bool:
    try:
        with urlopen(_READY) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False


def _drafts() -> list[Path]:
    return list(_HOSTS.parent.glob(".hosts.*"))


@contextmanager
def _running_agent() -> Iterator[ApiServer]:
    with ApiServer() as api, TemporaryDirectory() as name:
        for obj in objects_under(MANIFESTS):
            api.store.create(obj)
        kubeconfig = api.write_kubeconfig(Path(name, "kubeconfig"))
        config = write_config(Path(name, "nodeagent.yaml"))
        files = ("--config", config, "--kubeconfig", kubeconfig)
        options = (*files, "--node", "node1", "--log-level", "warning")
        with subprocess.Popen([*PYTHON, "nodeagent", "run", *options]) as agent:
            try:
                yield api
            finally:
                agent.terminate()


if __name__ == "__main__":
    sys.exit(main())
