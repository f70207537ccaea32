"""The watchers of all components of the node, as one: external changes cause a pass, own ones do not."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from nodeagent.agent.drift.addresses import AddressWatcher
from nodeagent.agent.drift.dnat import NftablesWatcher, XtablesWatcher
from nodeagent.agent.drift.hosts_file import HostsFileWatcher
from nodeagent.agent.drift.relay import RelayWatcher
from nodeagent.agent.drift.watcher import OnDrift, Watcher, WatcherState
from nodeagent.components.addresses.component import Addresses
from nodeagent.components.component import ComponentName, State
from nodeagent.components.relay.run_directory import RunDirectory
from nodeagent.config.options import Config


class NodeWatch:
    """Watches what nodeagent keeps by the configuration; calls `on_drift` from the watchers' threads."""

    def __init__(self, config: Config, dnat_backend: str, on_drift: OnDrift) -> None:
        relay = config.relay
        self.dnat_backend = dnat_backend
        self._watchers: list[Watcher[Any, Any]] = []
        if config.hosts.enabled:
            self._watchers.append(HostsFileWatcher(Path(config.hosts.file), on_drift))
        if config.dnat.backend != "none" or relay.kind == "node":
            dnat = XtablesWatcher if dnat_backend == "iptables" else NftablesWatcher
            self._watchers.append(dnat(on_drift))
        if relay.kind == "node":
            ranges = (relay.ipv4, relay.ipv6)
            self._watchers += [
                AddressWatcher(Addresses(relay.interface, ranges), relay.interface, ranges, on_drift),
                RelayWatcher(RunDirectory(Path(relay.haproxy_directory)).master_socket, on_drift),
            ]

    def start(self) -> None:
        """Start to watch; a further call retries watchers that could not start."""
        for watcher in self._watchers:
            watcher.start()

    def stop(self) -> None:
        """End; no call of `on_drift` begins afterwards."""
        for watcher in self._watchers:
            watcher.stop()

    def states(self) -> tuple[WatcherState, ...]:
        """Return the state of each watcher."""
        return tuple(watcher.state() for watcher in self._watchers)

    @contextmanager
    def own_changes(self) -> Iterator[None]:
        """Hold back all calls while the block changes the node; then report only external changes."""
        with ExitStack() as stack:
            for watcher in self._watchers:
                stack.enter_context(watcher.quiet())
            yield

    def expect(self, left: Mapping[ComponentName, State]) -> None:
        """Pass the states that a pass has left to the watchers; call it within `own_changes`."""
        for watcher in self._watchers:
            if watcher.component in left:
                watcher.expect(left[watcher.component])
