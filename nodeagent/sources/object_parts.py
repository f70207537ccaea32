"""What decoders of all kinds share: JSON to a Struct, an object's name and age, an address."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from itertools import islice
from typing import Any, TypeVar

import msgspec

from nodeagent.errors import SourceError, one_line, quoted
from nodeagent.model.addresses import IPAddress
from nodeagent.model.annotations import CLASS_ANNOTATION, EXCLUDE, NO_ANNOTATIONS
from nodeagent.model.objects import ObjectRef
from nodeagent.sources import api_objects as api

MOST_HOSTS = 10_000
"""Hosts that one object may ask for; those beyond are not read."""

_LONGEST_ANNOTATION = 4096
"""Characters of an annotation's value that decisions could rest on; a longer one is not read."""

_CLUSTER_WIDE = frozenset({"IngressClass", "Namespace", "Node", "ServiceCIDR"})

_DECIDING = frozenset({CLASS_ANNOTATION, EXCLUDE})


class DecodingError(SourceError):
    """One object can't be read at all; the others are served."""


_Raw = TypeVar("_Raw")

# RFC 1123 subdomain, as the API server demands of names (apimachinery's validation.IsDNS1123Subdomain).
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def decode(raw: bytes | dict[str, Any], expected: type[_Raw]) -> _Raw:
    """The object as the Struct `expected`. Raises DecodingError."""
    try:
        if isinstance(raw, bytes):
            return msgspec.json.decode(raw, type=expected)
        return msgspec.convert(raw, expected)
    except msgspec.MsgspecError as error:
        raise DecodingError(one_line(error)) from error


def ref_of(kind: str, metadata: api.Metadata) -> ObjectRef:
    """What the object is called. Raises DecodingError for a name that no API server takes."""
    namespace = "" if kind in _CLUSTER_WIDE else metadata.namespace or "default"
    for what, text in (("name", metadata.name), ("namespace", namespace or "none")):
        if not _NAME.fullmatch(text):
            raise DecodingError(
                f"metadata.{what}: {one_line(ascii(text))} is no name that the API server takes"
            )
    return ObjectRef(kind, namespace, metadata.name)


def created_of(metadata: api.Metadata) -> datetime | None:
    """The creation time; one without a zone is taken as UTC, so that every node orders objects alike."""
    time = metadata.creationTimestamp
    return time.replace(tzinfo=UTC) if time and time.tzinfo is None else time


def deciding_annotations(metadata: api.Metadata) -> Mapping[str, str]:
    """The annotations that decide about whoever asks for names; controllers write others all the time."""
    found = {key: value for key, value in (metadata.annotations or {}).items() if key in _DECIDING}
    return found or NO_ANNOTATIONS


def short_annotations(annotations: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """The annotations but for those whose values no provider writes so long; `problems` tells which."""
    long = [key for key, value in annotations.items() if len(value) > _LONGEST_ANNOTATION]
    problems += [
        f"metadata.annotations: {quoted(key)}: longer than {_LONGEST_ANNOTATION} characters: not read"
        for key in long
    ]
    return {key: value for key, value in annotations.items() if len(value) <= _LONGEST_ANNOTATION}


def some_hosts(hosts: Iterable[str], problems: list[str] | None = None) -> tuple[str, ...]:
    """The hosts in their order, each once, up to `MOST_HOSTS`; `problems` tells of the rest."""
    found = tuple(islice(dict.fromkeys(hosts), MOST_HOSTS + 1))
    if len(found) > MOST_HOSTS and problems is not None:
        problems.append(f"more than {MOST_HOSTS} hosts: those beyond are not read")
    return found[:MOST_HOSTS]


def address_of(text: str) -> IPAddress | None:
    """The address; None for what is none, and for one with a zone."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    # A zone (fe80::1%eth0) names an interface of somebody else's machine.
    return None if getattr(address, "scope_id", None) else address
