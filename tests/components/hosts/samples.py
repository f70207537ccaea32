"""Lines, networks and components that the tests of the hosts file share."""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path

from nodeagent.components.hosts.block import OwnLines, assemble, parse, written
from nodeagent.components.hosts.component import Hosts, HostsDiff, HostsState
from nodeagent.model.desired import Desired, HostsLine
from tests.components.converging import converge

NETWORKS = (ip_network("169.254.66.0/24"), ip_network("fd68:6169:7270::/112"), ip_network("10.96.7.7/32"))
OWN = OwnLines(NETWORKS)
USER = b"127.0.0.1 localhost\n::1 localhost ip6-localhost\n# caf\xe9 in Latin-1\n10.1.2.3 db db.corp\n"


def line(address: str, name: str) -> HostsLine:
    return HostsLine(ip_address(address), name)


def lines(count: int, last_byte: int = 2) -> tuple[HostsLine, ...]:
    """Make `count` lines to the relay address 169.254.66.`last_byte`."""
    return tuple(line(f"169.254.66.{last_byte}", f"host{number:05}.example.com") for number in range(count))


ONE = (line("169.254.66.2", "www.example.com"),)


def hosts_file(directory: Path, content: bytes | None = USER) -> Path:
    path = directory / "etc" / "hosts"
    path.parent.mkdir()
    if content is not None:
        path.write_bytes(content)
    return path


class KeptHosts(Hosts):
    """A component whose state is next to the directory of its file, and whose lines the test chooses."""

    def __init__(self, path: Path, *, enabled: bool = True) -> None:
        super().__init__(path, NETWORKS, path.parent.parent / "run", adopt=False, enabled=enabled)

    def difference(self, wanted: Iterable[HostsLine]) -> HostsDiff:
        return self.diff(self.read(), Desired(hosts=tuple(wanted)))


def make(subject: Hosts, wanted: Iterable[HostsLine]) -> HostsState:
    assert converge(subject, Desired(hosts=tuple(wanted))) == ""
    return subject.read()


def apply(path: Path, wanted: tuple[HostsLine, ...] = ONE) -> None:
    """Make the file hold `wanted`, and check that it then has nothing more to do."""
    subject = KeptHosts(path)
    left = make(subject, wanted)
    assert left == KeptHosts(path).read()
    assert not subject.difference(wanted)


def left_beside(path: Path) -> list[str]:
    """Name all that lies in the file's directory and in the state directory but the file itself."""
    state_dir = path.parent.parent / "run"
    beside = [entry.name for entry in path.parent.iterdir() if entry != path]
    return sorted(beside + [entry.name for entry in state_dir.glob("**/*")])


def render(user: bytes, lines: Sequence[HostsLine], *, adopt: bool = False, absent: bool = False) -> bytes:
    """Make the content of a file with the user's bytes and the block with these lines."""
    content, file = assemble(user, written(lines), adopt=adopt, absent=absent)
    assert file == parse(content, OWN)
    return content


def remove(content: bytes) -> bytes:
    """Return the user's bytes as they were before the block was written."""
    return parse(content, OWN).user
