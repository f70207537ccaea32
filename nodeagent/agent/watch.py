"""The watchers of all parts of the node, as one: others' changes call for a pass, our own do not."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nodeagent.agent.convergence import Convergence
from nodeagent.agent.drift.addresses import AddressWatcher
from nodeagent.agent.drift.hosts_file import HostsFileWatcher
from nodeagent.agent.drift.nftables import NftablesWatcher
from nodeagent.agent.drift.relay import RelayWatcher
from nodeagent.agent.drift.watcher import OnDrift, Watcher, WatcherState
from nodeagent.agent.drift.xtables import XtablesWatcher
from nodeagent.config.options import Config

_MASTER_SOCKET = "master.sock"


class NodeWatch:
    """Watches what the configuration has nodeagent keep.

    Args:
        config: The configuration.
        dnat_backend: The name of the DNAT backend in force.
        on_drift: Called from the watchers' threads.
    """

    def __init__(self, config: Config, dnat_backend: str, on_drift: OnDrift) -> None:
        relay = config.relay
        self.dnat_backend = dnat_backend
        self._hosts = HostsFileWatcher(Path(config.hosts.file), on_drift)
        self._addresses = AddressWatcher(relay.interface, (relay.ipv4, relay.ipv6), on_drift)
        self._nftables = NftablesWatcher(on_drift)
        self._xtables = XtablesWatcher(on_drift) if dnat_backend == "iptables" else None
        dnat = self._xtables or self._nftables
        self._relay = RelayWatcher(Path(relay.haproxy_directory) / _MASTER_SOCKET, on_drift)
        self._settled = False
        self._watchers: list[Watcher] = [
            *([self._hosts] if config.hosts.enabled else []),
            *([dnat] if config.dnat.backend != "none" or relay.kind == "node" else []),
            *([self._addresses, self._relay] if relay.kind == "node" else []),
        ]

    def start(self) -> None:
        """Begins to watch; what could not begin is tried again by a further call."""
        for watcher in self._watchers:
            watcher.start()

    def stop(self) -> None:
        """Ends; no call of `on_drift` begins afterwards."""
        for watcher in self._watchers:
            watcher.stop()

    def states(self) -> tuple[WatcherState, ...]:
        """How each watcher is."""
        return tuple(watcher.state() for watcher in self._watchers)

    @contextmanager
    def own_changes(self) -> Iterator[None]:
        """Holds back all calls while the block changes the node; `settle` then tells ours from others'."""
        with ExitStack() as stack:
            for watcher in self._watchers:
                stack.enter_context(watcher.quiet())
            yield

    def settle(self, done: Convergence) -> None:
        """Tells the watchers what stands by our own will; to be called within `own_changes`."""
        if done.hosts is not None:
            self._hosts.expect(done.hosts.after)
        if self._xtables is None:
            self._nftables.expect(done.transactions)
        elif done.transactions or not self._settled:
            self._xtables.expect(None if "dnat" in done.errors else done.desired.dnat)
        self._settled = True
        self._addresses.expect(address.address for address in done.desired.addresses)
        self._relay.expect(running=bool(done.desired.listeners))
