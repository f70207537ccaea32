"""What the cluster half decides from: CoreDNS's ConfigMaps, and the agents' plan without a node."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from nodeagent.config.options import Config
from nodeagent.coredns.config_maps import ConfigMap, read
from nodeagent.coredns.corefile.parsing import CorefileError
from nodeagent.coredns.corefile.standing import StandingNames, standing_names
from nodeagent.coredns.editing import Standing
from nodeagent.coredns.ways import path_of
from nodeagent.errors import SourceError
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Desired
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot
from nodeagent.plan.planner import plan
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.node.identity import ApiServers


@dataclass(frozen=True, slots=True)
class Maps:
    """CoreDNS's ConfigMaps as they were read; None for one that is not there."""

    main: ConfigMap
    imported: ConfigMap | None = None
    node_local: ConfigMap | None = None

    @property
    def standing(self) -> Standing:
        """Their texts."""
        return Standing(
            self.main.data,
            self.imported.data if self.imported else None,
            self.node_local.data if self.node_local else None,
        )

    def of(self, path: str) -> ConfigMap:
        """The one with this namespace and name."""
        found = (self.main, self.imported, self.node_local)
        return next(one for one in found if one is not None and str(one) == path)


def read_maps(connection: Connection, config: Config) -> Maps:
    """Reads them all. RBAC: get each by name.

    Raises:
        SourceError: one could not be read, or the one with the Corefile is not there.
    """
    options = config.coredns
    main = read(connection, options.namespace, options.config_map)
    if main is None:
        raise SourceError(
            f"{path_of(config, options.config_map)}: no such ConfigMap; where CoreDNS reads another, name it "
            "as coredns.configMap, and in the Role of daemonset/coredns (RKE2: rke2-coredns-rke2-coredns)"
        )
    return Maps(
        main,
        read(connection, options.namespace, options.import_config_map),
        read(connection, options.namespace, options.node_local_config_map),
    )


def plan_names(snapshot: Snapshot, facts: Facts, config: Config) -> Desired:
    """Pure: the agents' plan without what is one node's own: its names, its hosts file, its DNAT.

    What the Node tells of the cloud stays: by that, load balancers are detected.
    """
    node = snapshot.node and replace(snapshot.node, names=(), addresses=(), pod_cidrs=())
    families = _families(snapshot)
    hosts = msgspec.structs.replace(config.hosts, enabled=True)
    dnat = msgspec.structs.replace(config.dnat, backend="none", pods=False)
    coredns = msgspec.structs.replace(config.coredns, serves_pods=True)
    config = msgspec.structs.replace(config, hosts=hosts, dnat=dnat, coredns=coredns)
    desired = plan(replace(snapshot, node=node), facts, config)
    return replace(desired, hosts=tuple(line for line in desired.hosts if line.address.version in families))


def _families(snapshot: Snapshot) -> frozenset[int]:
    """The address families that the cluster's pods speak, by a Node's word; both where nothing is known.

    The relay of a family that no node speaks has no address: a pod would try in vain.
    """
    node = snapshot.node
    told = (*node.pod_cidrs, *node.addresses) if node else ()
    return frozenset(one.version for one in told) or frozenset({4, 6})


def cluster_facts(api: ApiServers, maps: Maps, snapshot: Snapshot) -> Facts:
    """Pure: the facts that decisions rest on where no node is meant."""
    return Facts(
        node_name="",
        api_servers=api.endpoints,
        api_server_names=api.names,
        standing_names=_standing(maps, snapshot),
        takes_wildcards=True,
        notes=api.notes,
    )


def _standing(maps: Maps, snapshot: Snapshot) -> Mapping[str, frozenset[IPAddress]]:
    """The names that CoreDNS answers now, with their addresses: a rewritten one has the relay Service's."""
    texts = [*maps.main.data.values(), *(maps.imported.data.values() if maps.imported else ())]
    try:
        found = standing_names(texts)
    except CorefileError:
        found = StandingNames()  # `decide` raises the same, with its words
    relay = frozenset(snapshot.relay_service.cluster_ips) if snapshot.relay_service else frozenset()
    return {**dict.fromkeys(found.rewritten, relay), **found.answered}
