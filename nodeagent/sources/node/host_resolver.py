"""What this host's own programs get for a name: the C library's resolver, hosts file and all."""

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path

from nodeagent.model.addresses import IPAddress

_OWN_HOSTS = Path("/etc/hosts")
_AT_ONCE = 16


class HostResolver:
    """Resolves as the node's programs do, from within a container, too.

    Args:
        hosts_file: The node's hosts file. Where that is not this process's own (a container, which has the
            node's /etc somewhere else), it is read here, before the C library is asked.
    """

    def __init__(self, hosts_file: Path) -> None:
        self._foreign = None if hosts_file == _OWN_HOSTS else hosts_file

    def resolve(self, name: str) -> tuple[IPAddress, ...]:
        """The addresses in the order in which a program tries them; empty for none, whatever the reason."""
        if self._foreign is not None and (found := _in_hosts_file(name, self._foreign)):
            return found
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            # UnicodeError: a label that IDNA can't encode.
            return ()
        return tuple(dict.fromkeys(ip_address(str(answer[4][0]).partition("%")[0]) for answer in answers))

    def resolve_all(self, names: Iterable[str]) -> dict[str, tuple[IPAddress, ...]]:
        """The same for many names at a time: a dead DNS server costs its time once."""
        wanted = list(dict.fromkeys(names))
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            return dict(zip(wanted, pool.map(self.resolve, wanted), strict=True))


def _in_hosts_file(name: str, file: Path) -> tuple[IPAddress, ...]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    found: dict[IPAddress, None] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].lower().split() or [""]
        if name.lower() in names:
            try:
                found[ip_address(address)] = None
            except ValueError:
                continue  # no address: such a line sets nothing
    return tuple(found)
