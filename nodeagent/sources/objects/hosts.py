"""Hosts in the texts of objects: at a path, in a rule, in an annotation; and how many count. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping

from nodeagent.model.addresses import LONGEST_HOSTNAME

MOST_HOSTS = 10_000
"""Hosts that one object may claim; the rest is not read."""

_MOST_HOST_BYTES = 512 * 1024
"""Bytes of all hosts of an object together."""

# An unterminated text reaches to the end: its end is not searched again from each quote in it.
_TOKENS = re.compile(r'`[^`]*`?|"[^"\\]*(?:\\.[^"\\]*)*"?|[A-Za-z]+|[!()]', re.DOTALL)
_HOST_MATCHERS = frozenset({"host", "hostheader", "hostsni"})

_PLAIN = re.compile(r"(?:\*\.)?[\w-]+(?:\.[\w-]+)*\.?", re.ASCII)

_NGINX = "nginx.ingress.kubernetes.io"
# ingress-nginx, "Annotations": "Server Alias" (commas between them) and "Redirect from/to www", which
# Traefik's provider for these annotations reads as well (not for wildcards). haproxy-ingress, "Configuration
# keys": "Server alias".
_ALIASES = (
    f"{_NGINX}/server-alias",
    "haproxy-ingress.github.io/server-alias",
    "ingress.kubernetes.io/server-alias",
)
_WWW = f"{_NGINX}/from-to-www-redirect"


def plain(text: str) -> tuple[str, ...]:
    """Return the hostname; nothing for a pattern (`~^www`, `*`), or for one with a port."""
    return (text,) if _PLAIN.fullmatch(text) else ()


def istio_host(text: str) -> tuple[str, ...]:
    """Return the host after the namespace that Istio allows before it (`prod/www.example.com`, `./*`)."""
    host = text.rpartition("/")[2]
    return (host,) if host != "*" else ()


def hosts_in_rule(rule: str) -> tuple[str, ...]:
    """Return the hosts of all Host and HostSNI matchers that are not negated, each once."""
    found: dict[str, None] = {}
    matcher = ""
    negating = False
    within = [("", False)]
    for part in _TOKENS.findall(rule):
        if part == "!":
            negating = not negating
        elif part == "(":
            within.append((matcher, within[-1][1] is not negating))
            matcher, negating = "", False
        elif part == ")":
            if len(within) > 1:
                within.pop()
        elif part[0] in '`"':
            name, negated = within[-1]
            if name in _HOST_MATCHERS and not negated and part[1:].endswith(part[0]):
                found[part[1:-1]] = None
        else:
            matcher = part.lower()
    found.pop("*", None)  # HostSNI(`*`): everything else
    return tuple(found)


def aliases(annotations: Mapping[str, str], hosts: Iterable[str]) -> Iterator[str]:
    """Yield the further hosts of an Ingress that has these: its aliases, and each with or without `www.`."""
    for key in _ALIASES:
        if key in annotations:
            for text in annotations[key].split(","):
                yield from plain(text.strip())
    if annotations.get(_WWW) == "true":
        for host in hosts:
            yield from plain(host.removeprefix("www.") if host.startswith("www.") else f"www.{host}")


def values_at(value: object, path: str) -> Iterator[object]:
    """Yield the values at a path, in which `[]` is every item of a list; missing ones yield nothing."""
    if not path:
        yield value
        return
    if path.startswith("[]"):
        for item in value if isinstance(value, list) else ():
            yield from values_at(item, path[2:].removeprefix("."))
        return
    cut = min((at for at in (path.find("."), path.find("[]")) if at >= 0), default=len(path))
    if isinstance(value, dict):
        yield from values_at(value.get(path[:cut]), path[cut:].removeprefix("."))


def texts_at(value: object, *paths: str) -> Iterator[str]:
    """Yield the texts at the paths; values of another type yield nothing."""
    return (found for path in paths for found in values_at(value, path) if isinstance(found, str))


def some_hosts(hosts: Iterable[str], problems: list[str]) -> tuple[str, ...]:
    """Return the hosts in their order, each once, up to `MOST_HOSTS`; `problems` mentions the rest."""
    found: dict[str, None] = {}
    left = _MOST_HOST_BYTES
    odd = 0
    for host in hosts:
        if len(host) > LONGEST_HOSTNAME or not host.isascii():
            odd += 1
            continue
        if host in found:
            continue
        left -= len(host)
        if left < 0 or len(found) == MOST_HOSTS:
            bound = f"{MOST_HOSTS} hosts" if left >= 0 else f"{_MOST_HOST_BYTES} bytes of hosts"
            problems.append(f"more than {bound}: the rest is not read")
            break
        found[host] = None
    if odd:
        problems.append(
            f"hosts that are longer than {LONGEST_HOSTNAME} characters, or not ASCII: {odd} not read"
        )
    return tuple(found)
