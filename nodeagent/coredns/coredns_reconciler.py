"""One pass over CoreDNS's ConfigMaps: reads, decides, writes; and notices what reverts them."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from types import MappingProxyType
from typing import Any

import msgspec

from nodeagent.backoff import SubjectBackoff
from nodeagent.config.options import Config
from nodeagent.coredns.editing import CONFIG_MAP_BYTES, Edit, Edits, decide, decide_removal
from nodeagent.coredns.managed_block import block_names, blocks_of, path_of
from nodeagent.coredns.parsing import CorefileError
from nodeagent.errors import ApplyError, ConfigError, NodeagentError, SourceError
from nodeagent.model.addresses import IPAddress, is_wildcard, sort_key
from nodeagent.model.desired import Desired
from nodeagent.model.facts import DnsAnswer, Facts
from nodeagent.model.objects import Age, ObjectRef, Snapshot, by_age
from nodeagent.observe.event_recorder import PendingEvent
from nodeagent.plan.planner import plan
from nodeagent.sources.api_servers import ApiServers, find_api_servers
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import NotFoundError
from nodeagent.sources.kubernetes.resources import object_path
from nodeagent.sources.kubernetes.single_requests import read_cluster
from nodeagent.sources.upstream_dns import ask_once

_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class CoreDnsConfigMap:
    """A ConfigMap as it was read; `raw` is the whole object, with fields that nodeagent does not know."""

    ref: ObjectRef
    raw: Mapping[str, Any] = field(hash=False, repr=False)

    @property
    def data(self) -> Mapping[str, str]:
        """The texts by key."""
        return self.raw.get("data") or {}

    @property
    def last_writer(self) -> str:
        """The other program that wrote it last (managedFields); empty if unknown."""
        entries = [
            (entry.get("time") or "", entry.get("manager") or "")
            for entry in self.raw["metadata"].get("managedFields") or []
            if entry.get("manager") != "nodeagent"
        ]
        return max(entries, default=("", ""))[1]


def read(connection: Connection, namespace: str, name: str) -> CoreDnsConfigMap | None:
    """Read a ConfigMap; None if there is none. RBAC: get it by name. Raises SourceError."""
    ref = ObjectRef("ConfigMap", namespace, name)
    path = object_path(ref)
    try:
        raw = json.loads(connection.get_json(path, timeout=_SECONDS))
    except NotFoundError:
        return None
    except ValueError as error:
        raise SourceError(f"get {path}: the answer is invalid: {error}") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("metadata"), dict):
        raise SourceError(f"get {path}: the answer is not a ConfigMap")
    return CoreDnsConfigMap(ref, raw)


def write(connection: Connection, config_map: CoreDnsConfigMap, edits: Iterable[Edit]) -> None:
    """Write what changes in one ConfigMap, if it still is as it was read. RBAC: update it.

    Where it raises ApplyError (larger than the API accepts) or SourceError, nothing was changed.
    """
    merged = {**config_map.data, **{edit.key: edit.after for edit in edits if edit}}
    data = {key: text for key, text in merged.items() if text is not None}
    size = sum(len(text.encode()) for text in data.values())
    size += sum(len(value) * 3 // 4 for value in (config_map.raw.get("binaryData") or {}).values())
    if size > CONFIG_MAP_BYTES:
        raise ApplyError(
            f"ConfigMap {config_map.ref.path} would have {size:,} bytes, and the API accepts no more than "
            f"{CONFIG_MAP_BYTES:,}: it was left as it was. Serve fewer hostnames: use hosts.exclude, or an "
            "Ingress with a wildcard host instead of many"
        )
    body = {"kind": "ConfigMap", "apiVersion": "v1", **config_map.raw, "data": data}
    connection.write("update", object_path(config_map.ref), body, _SECONDS)


def read_maps(connection: Connection, config: Config) -> Mapping[str, CoreDnsConfigMap]:
    """Read those that exist, by path. Raises SourceError, also if there is none with the Corefile."""
    maps = _existing(connection, config)
    if (path := path_of(config, config.coredns.config_map)) not in maps:
        raise SourceError(
            f"{path}: no such ConfigMap; if CoreDNS reads another one, set coredns.configMap to it, and name "
            "it in the Role of daemonset/coredns (RKE2: rke2-coredns-rke2-coredns)"
        )
    return maps


def _existing(connection: Connection, config: Config) -> dict[str, CoreDnsConfigMap]:
    options = config.coredns
    names = (options.config_map, options.import_config_map, options.node_local_config_map)
    config_maps = (read(connection, options.namespace, name) for name in names)
    return {config_map.ref.path: config_map for config_map in config_maps if config_map is not None}


def plan_names(snapshot: Snapshot, facts: Facts, config: Config) -> Desired:
    """Return the agents' plan without what is one node's own: its names, its hosts file, its DNAT. Pure.

    The cloud of the Node stays, and its addresses: if a load balancer publishes them, DNS verifies nothing.
    """
    known = snapshot.node
    node = known and replace(known, names=(), pod_cidrs=())
    # Those that the cluster's pods support, according to a Node; both if nothing is known. The relay of a
    # family that no node supports has no address: a pod would try in vain.
    families = {entry.version for entry in (*known.pod_cidrs, *known.addresses)} if known else set[int]()
    families = families or {4, 6}
    hosts = msgspec.structs.replace(config.hosts, enabled=True)
    dnat = msgspec.structs.replace(config.dnat, backend="none", pods=False)
    coredns = msgspec.structs.replace(config.coredns, serves_pods=True)
    config = msgspec.structs.replace(config, hosts=hosts, dnat=dnat, coredns=coredns)
    desired = plan(replace(snapshot, node=node), facts, config)
    return replace(desired, hosts=tuple(line for line in desired.hosts if line.address.version in families))


def _conflict(config_map: CoreDnsConfigMap, delay: float) -> PendingEvent:
    writer = repr(config_map.last_writer) if config_map.last_writer else "another program"
    message = (
        f"{writer} keeps reverting ConfigMap {config_map.ref.path}; nodeagent writes its hostnames again in "
        f"{delay:.0f} s at the earliest. Make its owner keep the Corefile unchanged, or import a ConfigMap "
        "of its own (docs/coredns.md)"
    )
    return PendingEvent(config_map.ref, "CorefilePutBack", message, config_map.raw["metadata"].get("uid", ""))


@dataclass(frozen=True, slots=True)
class CoreDnsPass:
    """What one pass decided and did; `errors` are by ConfigMap, and those maps are as they were."""

    desired: Desired
    edits: Edits
    written: tuple[str, ...] = ()
    conflicts: tuple[PendingEvent, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)


class CoreDnsReconciler:
    """Keeps CoreDNS's ConfigMaps in the state that the cluster's objects require.

    The names and addresses in `api` are never answered otherwise; `clock` returns monotonic seconds.
    """

    def __init__(
        self,
        connection: Connection,
        api: ApiServers,
        *,
        adopt: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._api = api
        self._adopt = adopt
        # Owners revert changes every few minutes (Flux, add-on managers) or hours, not seconds.
        self._backoff: SubjectBackoff[str] = SubjectBackoff(
            clock, limit=3, window=3600.0, first=60.0, longest=3600.0, forget=7200.0
        )
        self._ours: dict[tuple[str, str], list[str]] = {}
        self._standing_at: Mapping[IPAddress, ObjectRef] = {}

    def reconcile(self, snapshot: Snapshot, dns: Mapping[str, DnsAnswer], config: Config) -> CoreDnsPass:
        """Make one pass. Where it raises NodeagentError, as `decide_once`, nothing was changed."""
        maps = read_maps(self._connection, config)
        at = self._standing_at
        desired, edits = _decided(self._api, maps, snapshot, dns, config, adopt=self._adopt, standing_at=at)
        written, conflicts, errors = [], [], {}
        withheld = False
        for path, group in _by_config_map(edits.edits):
            config_map = maps[path]
            if not any(group):
                self._remember(group)
                continue
            adds = any(blocks_of(edit.after or "") for edit in group)
            if withheld and not adds:  # else what moves to the other one would be answered nowhere
                continue
            if self._backoff.until(path):  # its owner reverts it
                withheld |= adds
                continue
            # It wrote the new text before: the desired text is the same, the actual is not.
            put_back = all(
                self._ours.get((edit.config_map, edit.key)) == blocks_of(edit.after or "") for edit in group
            )
            try:
                write(self._connection, config_map, group)
            except NodeagentError as error:
                errors[path] = str(error)
                withheld |= adds
                continue
            written.append(path)
            self._remember(group)
            if put_back and (delay := self._backoff.wrote(path)):
                conflicts.append(_conflict(config_map, delay))
        now = {relay.address: relay.load_balancer for relay in desired.addresses}
        # What could not be written is answered as before.
        complete = len(written) == len({edit.config_map for edit in edits.pending})
        self._standing_at = now if complete else {**now, **at}
        return CoreDnsPass(desired, edits, tuple(written), tuple(conflicts), errors)

    def _remember(self, edits: list[Edit]) -> None:
        for edit in edits:
            self._ours[edit.config_map, edit.key] = blocks_of(edit.after or "")


def _by_config_map(edits: Iterable[Edit]) -> list[tuple[str, list[Edit]]]:
    return [(path, [*group]) for path, group in groupby(edits, lambda edit: edit.config_map)]


def decide_once(connection: Connection, node_name: str, config: Config, *, adopt: bool) -> CoreDnsPass:
    """Decide; change nothing. Hostnames that need verification are looked up, for ten seconds at most.

    Raises SourceError, CorefileError, or ConfigError: nodeagent's block has addresses of other relay ranges.
    """
    snapshot = read_cluster(connection, node_name, config.relay.existing_service)
    maps = read_maps(connection, config)
    api = find_api_servers(servers=[connection.server])
    desired, edits = _decided(api, maps, snapshot, {}, config, adopt=adopt)
    if desired.questions:
        dns = ask_once(desired.questions, config.hosts)
        desired, edits = _decided(api, maps, snapshot, dns, config, adopt=adopt)
    return CoreDnsPass(desired, edits)


def _decided(  # noqa: PLR0913 - what a decision rests on
    api: ApiServers,
    maps: Mapping[str, CoreDnsConfigMap],
    snapshot: Snapshot,
    dns: Mapping[str, DnsAnswer],
    config: Config,
    *,
    adopt: bool,
    standing_at: Mapping[IPAddress, ObjectRef] = MappingProxyType({}),
) -> tuple[Desired, Edits]:
    contents = {path: config_map.data for path, config_map in maps.items()}
    names = (config.coredns.config_map, config.coredns.import_config_map)
    standing: Mapping[str, frozenset[IPAddress]] = {}
    with suppress(CorefileError):  # `decide` raises the same, with its own message
        texts = (contents.get(path_of(config, name), {}).values() for name in names)
        standing = block_names(chain.from_iterable(texts))
    ranges = (config.relay.ipv4, config.relay.ipv6)
    written = {address for addresses in standing.values() for address in addresses}
    foreign = sorted((ip for ip in written if not any(ip in network for network in ranges)), key=sort_key)
    if foreign and config.relay.existing_service is None:
        raise ConfigError(
            f"CoreDNS's block has addresses outside of relay.ipv4 and relay.ipv6, such as {foreign[0]}: it "
            "was written with other ranges. Nothing was changed. Set the agents' ranges; if those have "
            "changed, run `nodeagent coredns cleanup` first"
        )
    if snapshot.pending:
        why = "; ".join(dict.fromkeys(snapshot.pending.values()))
        raise SourceError(
            f"not read yet: {', '.join(sorted(snapshot.pending))} ({why}). Without them, CoreDNS would lose "
            "hostnames. Nothing was changed"
        )
    servers = api.with_published(snapshot.api_servers)
    facts = Facts(
        node_name="",
        api_servers=servers.endpoints,
        api_server_names=servers.names,
        standing_names=standing,
        standing_at=standing_at,
        dns=dns,
        takes_wildcards=True,
        notes=servers.notes,
    )
    desired = plan_names(snapshot, facts, config)
    ages: dict[ObjectRef, Age] = {}
    if any(is_wildcard(line.name) for line in desired.hosts):
        for claimants in (snapshot.ingresses, snapshot.routes, snapshot.controller_routes):
            ages |= {claimant.ref: by_age(claimant) for claimant in claimants}
    return desired, decide(desired, contents, config, adopt=adopt, never=api.names, ages=ages)


def clean_up(connection: Connection, config: Config, say: Callable[[str], object]) -> bool:
    """Remove nodeagent's block from every ConfigMap; return whether there was one. `say` gets each removal.

    Raises SourceError, or CorefileError: a marker is unmatched; nothing was changed.
    """
    maps = _existing(connection, config)
    edits = decide_removal({path: config_map.data for path, config_map in maps.items()})
    for path, group in _by_config_map(edits):
        write(connection, maps[path], group)
        for edit in group:
            say(f"ConfigMap {edit.config_map}: nodeagent's block was removed from {edit.key}")
    return bool(edits)
