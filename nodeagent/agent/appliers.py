"""The appliers that a configuration asks for."""

from dataclasses import dataclass
from pathlib import Path

from nodeagent.appliers.addresses.applier import AddressApplier
from nodeagent.appliers.dnat.component import Dnat
from nodeagent.appliers.hosts.applier import HostsApplier
from nodeagent.appliers.relay import RelayApplier
from nodeagent.config.options import Config


@dataclass(frozen=True, slots=True)
class Appliers:
    """One applier for each part of the node."""

    addresses: AddressApplier
    relay: RelayApplier
    dnat: Dnat
    hosts: HostsApplier


def build_appliers(config: Config, *, adopt: bool) -> Appliers:
    """Makes the appliers; changes nothing. `adopt` lets hairpin-proxy's old hosts lines be removed.

    A DNAT backend that can't be had on this node is no error here: the applier in its place tells it, and
    the others serve. Raises ApplyError for a hosts file that must not be written.
    """
    relay = config.relay
    return Appliers(
        addresses=AddressApplier(relay.interface, (relay.ipv4, relay.ipv6)),
        relay=RelayApplier(relay),
        dnat=Dnat(config.dnat.backend),
        hosts=HostsApplier(
            Path(config.hosts.file), (relay.ipv4, relay.ipv6), Path(relay.run_dir), adopt=adopt
        ),
    )
