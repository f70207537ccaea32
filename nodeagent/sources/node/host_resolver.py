"""What this host's own programs get for a name: the C library's resolver, hosts file and all."""

import socket
from ipaddress import ip_address

from nodeagent.model.addresses import IPAddress


def resolve(name: str) -> tuple[IPAddress, ...]:
    """The addresses in the order in which a program tries them; empty for none, whatever the reason."""
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        # UnicodeError: a label that IDNA can't encode.
        return ()
    return tuple(dict.fromkeys(ip_address(str(answer[4][0]).partition("%")[0]) for answer in answers))
