"""What a claimed host is: a hostname that a hosts file can hold, a wildcard, or neither."""

import re
from collections.abc import Iterable

from nodeagent.model.facts import HOSTNAME, LONGEST_HOSTNAME

_NAME = re.compile(HOSTNAME)


def canonical(host: str) -> str:
    """Return the host in the form in which it is compared and written.

    Lower case, no final dot (RFC 1035, 2.3.3). A host in this form is returned itself, not a copy.
    """
    name = host.lower().removesuffix(".")
    return host if name == host else name


def defect(name: str) -> str | None:
    """Why `name` (canonical) can't be a hostname in a hosts file; None if it can (RFC 1123, 2.1)."""
    if len(name) > LONGEST_HOSTNAME:
        return f"longer than {LONGEST_HOSTNAME} characters"
    if not _NAME.fullmatch(name):
        return "not a DNS name"
    if name.rpartition(".")[2].isdigit():
        return "looks like an address, not a name"
    return None


def is_wildcard(name: str) -> bool:
    """Whether the host matches hostnames below its suffix (`*.example.com`).

    For an Ingress, those one label below it; for the Gateway API, all. No hosts file can hold either.
    """
    return name.startswith("*.")


def covering(name: str, suffixes: Iterable[str]) -> str | None:
    """Return the first of `suffixes` that `name` equals or is below, label by label; None without one."""
    ends = tuple(suffixes)
    if not name.endswith(ends):  # most names, decided without a loop
        return None
    for suffix in ends:
        if name == suffix or name.endswith(f".{suffix}"):
            return suffix
    return None
