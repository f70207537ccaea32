import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.root import needs_root
from tests.testbed.processes import children
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

pytestmark = needs_root

_ROOT = Path(__file__).parents[2]
_STARTS_AND_STAYS = """
import sys
from tests.testbed.forked import PYTHON
from tests.testbed.world import World
with World() as world:
    world.node1.popen([*PYTHON, "http.server"], forked=True)
    print(world.tmp)
    print(*(host.network_namespace() for host in world.hosts), flush=True)
    sys.stdin.read()
"""


def test_the_machine_is_untouched_while_a_world_exists_and_after() -> None:
    before = _machine()
    with World() as world:
        namespaces = {host.network_namespace() for host in world.hosts}
        assert namespaces <= _standing_namespaces()
        assert _machine() == before
    assert _machine() == before
    assert not namespaces & _standing_namespaces()
    assert not world.tmp.exists()


def test_nothing_stays_after_a_killed_test_process() -> None:
    """That Ctrl-C leaves nothing is shown by test_demo.py."""
    with subprocess.Popen(
        [sys.executable, "-c", _STARTS_AND_STAYS],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        directory = Path(process.stdout.readline().strip())
        namespaces = {int(number) for number in process.stdout.readline().split()}
        assert namespaces <= _standing_namespaces()
        descendants = list(_descendants(process.pid))
        process.kill()
        process.wait(timeout=10)
    wait_until(lambda: not namespaces & _standing_namespaces(), "every process of the world having died")
    # No process was left to remove it; the next world does, if not one of another worker has by now.
    with World():
        pass
    assert not directory.exists()
    wait_until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in descendants), "the fork server having died"
    )


def _descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _descendants(child)


def _standing_namespaces() -> set[int]:
    """List the network namespaces of the machine's processes that root may look into, as a world's."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(link.stat().st_ino)
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
    return found


def _machine() -> dict[str, object]:
    links = subprocess.run(["ip", "-oneline", "link"], capture_output=True, text=True, check=True).stdout
    rules = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    return {
        "links": links,
        # The kernel may list what a command checks at this moment, though it never comes to be.
        "rules": rules.replace("table inet nodeagent_probe {\n}\n", ""),
        "hosts": hashlib.sha256(Path("/etc/hosts").read_bytes()).hexdigest(),
        "named namespaces": [Path("/run/netns").exists(), Path("/etc/netns").exists()],
        "mounts": Path("/proc/self/mountinfo").read_text("utf-8"),
    }
