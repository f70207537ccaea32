"""The cluster half once, without a lease of its own: what `plan` shows, and what `cleanup` takes away."""

import time
from collections.abc import Callable
from dataclasses import replace

from msgspec import Struct

from nodeagent.agent.dns.verifier import ask_once
from nodeagent.config.options import Config
from nodeagent.coredns.config_maps import put_back_previous, write
from nodeagent.coredns.corefile.parsing import CorefileError
from nodeagent.coredns.editing import Edit, Edits, decide, decide_removal
from nodeagent.coredns.lease import CLIENT_GO, LeaderElector, LeaseName, NotLeaderError
from nodeagent.coredns.reconciler import cluster_facts, plan_names, read_maps
from nodeagent.model.desired import Desired
from nodeagent.sources.kubernetes.cluster import read_cluster
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.node.identity import find_api_servers

_WRITE_SECONDS = 10.0


class Look(Struct, frozen=True):
    """What is decided, and what is to change for it."""

    desired: Desired
    edits: Edits


def look(connection: Connection, node_name: str, config: Config, *, adopt: bool) -> Look:
    """Decides once; changes nothing. Names that need proof are asked for, ten seconds at most.

    `node_name` is any node's: it tells which cloud this is.

    Raises:
        SourceError: objects can't be had.
        CorefileError: a Corefile can't be edited.
    """
    service = config.relay.existing_service
    snapshot = read_cluster(connection, node_name, service, config.load_balancers.config_map_names)
    maps = read_maps(connection, config)
    api = find_api_servers(servers=[connection.server])
    facts = cluster_facts(api, maps, snapshot)
    desired = plan_names(snapshot, facts, config)
    if desired.questions:
        facts = replace(facts, dns=ask_once(desired.questions, config.hosts))
        desired = plan_names(snapshot, facts, config)
    return Look(desired, decide(desired, maps.standing, config, adopt=adopt, never=api.names))


def clean_up(
    connection: Connection, config: Config, may_write: Callable[[], float] = lambda: _WRITE_SECONDS
) -> tuple[Edit, ...]:
    """Takes our block out of every ConfigMap; gives what was changed. Idempotent.

    Raises:
        CorefileError: a marker has lost its twin; nothing was changed.
        SourceError: an object can't be had or written; ConflictError: somebody else wrote it meanwhile.
    """
    maps = read_maps(connection, config)
    edits = decide_removal(maps.standing, config)
    for path in dict.fromkeys(edit.config_map for edit in edits):
        write(connection, maps.of(path), [edit for edit in edits if edit.config_map == path], may_write)
    return edits


def restore(
    connection: Connection, config: Config, may_write: Callable[[], float] = lambda: _WRITE_SECONDS
) -> tuple[str, ...]:
    """Puts the Corefiles back that were kept, whatever was edited since; gives the ConfigMaps.

    Raises:
        CorefileError: none was kept.
        SourceError: an object can't be had or written.
    """
    maps = read_maps(connection, config)
    found = tuple(
        str(config_map)
        for config_map in (maps.main, maps.node_local)
        if config_map is not None and put_back_previous(connection, config_map, may_write())
    )
    if not found:
        raise CorefileError(
            f"{maps.main}: no previous Corefile is kept: nodeagent's block was never in it, or was removed"
        )
    return found


def keeping_others_out(
    connection: Connection,
    lease: LeaseName,
    identity: str,
    wait: Callable[[float], None] = time.sleep,
) -> LeaderElector | None:
    """Takes the controllers' lease, so that none of them writes; waits until that of a dead one is over.

    Returns:
        The holder, to be released; None where there is no lease, and so no controller.

    Raises:
        NotLeaderError: a controller lives; the text says how to end it.
        SourceError: the Lease can't be had.
    """
    elector = LeaderElector(connection, lease, identity)
    if not elector.exists():
        return None
    for _ in range(int(CLIENT_GO.duration / CLIENT_GO.retry) + 2):
        elector.try_once()
        if elector.is_leader:
            return elector
        if elector.error is not None:
            raise elector.error
        wait(CLIENT_GO.retry)
    raise NotLeaderError(
        f"{elector.holder or 'a controller'} holds {lease} and would write the hostnames again; nothing was "
        f"changed. Stop it first: kubectl -n {lease.namespace} scale deployment {lease.name} --replicas 0"
    )
