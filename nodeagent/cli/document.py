"""The answer of `plan` and `status` as data: a documented, versioned schema (docs/schema/)."""

from typing import Literal

import msgspec
from msgspec import Struct

SCHEMA_VERSION = "1"
"""Raised whenever a field is removed or changes its meaning; new fields alone do not raise it."""


class ObjectName(Struct, frozen=True, rename="camel"):
    """One object of the cluster."""

    kind: str
    namespace: str
    name: str


class ListenerReport(Struct, frozen=True, rename="camel"):
    """One relay listener of a served load balancer: its actual state on the node.

    `redirected` are the load balancer's endpoints whose traffic DNAT sends here; `backend` is HAProxy's
    health check of the ingress controller, null if HAProxy does not report it.
    """

    relay: str
    answers: bool
    redirected: list[str]
    backend: str | None


class LoadBalancer(Struct, frozen=True, rename="camel"):
    """One LoadBalancer Service: the decision and the reason.

    `code` is the reason's stable short name. `listeners` is null in a plan, which checks no listener.
    """

    service: ObjectName
    verdict: Literal["served", "skipped", "refused"]
    code: str
    reason: str
    addresses: list[str]
    relay_addresses: list[str]
    ports: list[int]
    remarks: list[str]
    listeners: list[ListenerReport] | None


class Name(Struct, frozen=True, rename="camel"):
    """One hostname: the decision and the reason.

    `written` says whether the managed block has it now; null if the hosts file could not be read.
    """

    name: str
    claimed_by: ObjectName
    service: ObjectName | None
    verdict: Literal["served", "skipped", "refused"]
    code: str
    reason: str
    written: bool | None


class Unreadable(Struct, frozen=True, rename="camel"):
    """An object that could not be used."""

    where: str
    reason: str


class AddressChanges(Struct, frozen=True, rename="camel"):
    """Relay addresses to add to, and to remove from, the node."""

    interface: str
    add: list[str]
    remove: list[str]


class Relay(Struct, frozen=True, rename="camel"):
    """One relay listener and its target; `proxyProtocol` is null if it adds no header."""

    bind: str
    server: str
    proxy_protocol: Literal["v1", "v2"] | None
    service: ObjectName


class RelayChanges(Struct, frozen=True, rename="camel"):
    """Relay listeners to add and to remove, and what that does to HAProxy."""

    action: str
    reason: str
    add: list[Relay]
    remove: list[Relay]


class DnatEntry(Struct, frozen=True, rename="camel"):
    """Connections to `match` (the load balancer) are sent to `to` (the relay)."""

    match: str
    to: str
    service: ObjectName


class DnatRules(Struct, frozen=True, rename="camel"):
    """Rules of DNAT: `redirects`, the ranges of pods they apply to, and the guard of the relay.

    Only this node and the `admitted` ranges can reach the `guarded` ranges.
    """

    redirects: list[DnatEntry]
    pods: list[str]
    guarded: list[str]
    admitted: list[str]


class DnatChanges(Struct, frozen=True, rename="camel"):
    """Rules of DNAT to add and to remove; `transaction` is the complete input of the backend."""

    backend: str
    add: DnatRules
    remove: DnatRules
    damage: list[str]
    transaction: str


class HostsChanges(Struct, frozen=True, rename="camel"):
    """The change of the hosts file: hostnames whose line is added, removed or changed, and a unified diff."""

    file: str
    add: list[str]
    remove: list[str]
    move: list[str]
    diff: str


class Changes(Struct, frozen=True, rename="camel"):
    """The pending changes; null if there are none."""

    addresses: AddressChanges | None
    relay: RelayChanges | None
    dnat: DnatChanges | None
    hosts: HostsChanges | None


class Document(Struct, frozen=True, rename="camel"):
    """The whole answer. `inSync` is true if nothing is to be changed and nothing failed."""

    schema_version: Literal["1"]
    kind: Literal["Plan", "Status"]
    node: str
    in_sync: bool
    changes: Changes
    errors: dict[str, str]
    load_balancers: list[LoadBalancer]
    names: list[Name]
    unreadable: list[Unreadable]
    remarks: list[str]


def encode(document: Document) -> str:
    """Return the document as indented JSON with a final newline. Pure."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
