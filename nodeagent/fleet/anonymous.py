"""Hostnames in the texts of a bundle, replaced by pseudonyms. Pure, but for the key."""

import hmac
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

_HOSTNAME = re.compile(r"(?<![\w.-])(?:\*\.)?(?:[A-Za-z0-9_](?:[\w-]*\w)?\.)+[A-Za-z][\w-]*\w(?![\w-])")
_OF_HOSTNAMES = frozenset({"host", "hosts", "hostname", "hostnames", "match"})
_PUBLIC = ("kubernetes.io", "k8s.io", "nodeagent.io", "x-k8s.io", "cluster.local", "svc", "local")
"""Never replaced: API groups and annotations, without which a report says nothing."""


class Pseudonyms:
    """The same pseudonym for a hostname wherever it occurs; without the key none can be tried out.

    Args:
        hostnames: those of the cluster. What shares the last two labels with one of them is replaced as well:
            a hostname may occur in a log alone.
        key: random, for one bundle.
    """

    def __init__(self, hostnames: Iterable[str], key: bytes) -> None:
        self._key = key
        self._zones = frozenset(filter(None, (_zone(name) for name in hostnames)))

    def replaced(self, text: str) -> str:
        """Return the text with each hostname of the cluster replaced: `h-0123456789.invalid`."""
        return _HOSTNAME.sub(self._one, text)

    def _one(self, match: re.Match[str]) -> str:
        name = match[0].removeprefix("*.").lower()
        if _zone(name) not in self._zones:
            return match[0]
        wildcard = "*." if match[0].startswith("*.") else ""
        return f"{wildcard}h-{hmac.new(self._key, name.encode(), 'sha256').hexdigest()[:10]}.invalid"


def hostnames_in(texts: Iterable[str]) -> set[str]:
    """Return the hostnames that JSON documents have in fields for hostnames. Pure."""
    found: set[str] = set()
    for text in texts:
        try:
            document = json.loads(text)
        except ValueError:
            continue
        found |= set(_walk(document, within=False))
    return found


def _walk(value: Any, *, within: bool) -> Iterator[str]:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        for key, inner in value.items():
            # The hostnames of `nodeagent status` are objects, too: {"names": [{"name": "site.example.com"}]}.
            if key == "names" and isinstance(inner, list):
                yield from (str(one["name"]) for one in inner if isinstance(one, dict) and "name" in one)
            yield from _walk(inner, within=key in _OF_HOSTNAMES)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, within=within)
    elif within and isinstance(value, str):
        yield from _HOSTNAME.findall(value)


def _zone(name: str) -> str:
    """The last two labels; empty for a name that is never replaced."""
    plain = name.removeprefix("*.").rstrip(".").lower()
    if any(plain == public or plain.endswith(f".{public}") for public in _PUBLIC):
        return ""
    return ".".join(plain.split(".")[-2:])
