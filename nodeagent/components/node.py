"""The components that a configuration requires, their actual state, and which listeners are ready.

Each state is read at most once while it holds.
"""

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from msgspec import Struct

from nodeagent.components.addresses.component import Addresses
from nodeagent.components.addresses.state import AddressState
from nodeagent.components.component import COMPONENTS, Component, ComponentName, State
from nodeagent.components.dnat.component import Dnat
from nodeagent.components.dnat.state import DnatState
from nodeagent.components.hosts.component import Hosts
from nodeagent.components.hosts.state import HostsState
from nodeagent.components.relay import Relay, RelayState
from nodeagent.components.relay.haproxy_sockets import Unreachable
from nodeagent.config.options import Config
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired


class Components(Struct, frozen=True):
    """The four components of the node."""

    addresses: Addresses
    relay: Relay
    dnat: Dnat
    hosts: Hosts

    def __getitem__(self, name: ComponentName) -> Component[Any, Any]:
        component: Component[Any, Any] = getattr(self, name)
        return component

    def __iter__(self) -> Iterator[Component[Any, Any]]:
        return (self[name] for name in COMPONENTS)


def build_components(config: Config, *, adopt: bool) -> Components:
    """Make the components; changes nothing. With `adopt`, hairpin-proxy's old hosts lines are removed later.

    A DNAT backend that is not available on this node is not an error here: reading it reports that, and the
    other components work. Raises ApplyError for a hosts file that must not be written.
    """
    relay = config.relay
    return Components(
        addresses=Addresses(relay.interface, (relay.ipv4, relay.ipv6)),
        relay=Relay(relay),
        dnat=Dnat(config.dnat.backend),
        hosts=Hosts(
            Path(config.hosts.file),
            (relay.ipv4, relay.ipv6),
            Path(relay.run_dir),
            adopt=adopt,
            enabled=config.hosts.enabled,
        ),
    )


class ActualState:
    """The actual state of each component: read when it is first needed, then carried forward.

    Made for one pass or one command: the next one sees what other programs change meanwhile.

    Args:
        components: The components to read.
    """

    def __init__(self, components: Components) -> None:
        self.components = components
        self._states: dict[ComponentName, State] = {}
        self._begun: dict[ComponentName, Future[State]] = {}

    def begin(self, name: ComponentName, meanwhile: Executor) -> None:
        """Read a component's state in a thread; `of` waits for it."""
        self._begun[name] = meanwhile.submit(self.components[name].read)

    def of(self, name: ComponentName) -> Any:  # noqa: ANN401 - each component has a type of its own
        """Return a component's state; raises ApplyError if it can't be read."""
        if name not in self._states:
            begun = self._begun.pop(name, None)
            self._states[name] = begun.result() if begun else self.components[name].read()
        return self._states[name]

    def left(self, name: ComponentName, state: State | None) -> None:
        """Take over the state that a change has left; None if it is not known."""
        if state is None:
            self._states.pop(name, None)
        else:
            self._states[name] = state

    @property
    def addresses(self) -> AddressState:
        """See `of`."""
        state: AddressState = self.of("addresses")
        return state

    @property
    def relay(self) -> RelayState:
        """See `of`; never raises."""
        state: RelayState = self.of("relay")
        return state

    @property
    def dnat(self) -> DnatState:
        """See `of`."""
        state: DnatState = self.of("dnat")
        return state

    @property
    def hosts(self) -> HostsState:
        """See `of`."""
        state: HostsState = self.of("hosts")
        return state


class ListenerStatus(Struct, frozen=True):
    """One listener: whether it answers, what is redirected to it, and the health of its upstream.

    `backend` is the ingress controller's state in HAProxy's words; None if HAProxy does not report it.
    """

    bind: Endpoint
    answers: bool
    redirected: tuple[Endpoint, ...]
    backend: str | None


def read_listener_status(desired: Desired, actual: ActualState) -> dict[Endpoint, ListenerStatus]:
    """Return the state of the desired listeners, by the kernel, HAProxy and the DNAT backend.

    Changes nothing. What can't be read counts as missing: the comparison reports the error.
    """
    answering = ready_listeners(desired, actual)
    statistics = actual.components.relay.statistics()
    backends = {}
    if not isinstance(statistics, Unreachable):
        backends = {
            server.bind: (f"{server.status} ({server.check})" if server.check else server.status)
            + (f", {server.connections} connections, {server.rejected} rejected" if server.rejected else "")
            for server in statistics
        }
    try:
        redirects = actual.dnat.rules.redirects
    except ApplyError:
        redirects = ()
    return {
        listener.bind: ListenerStatus(
            listener.bind,
            listener.bind in answering,
            tuple(redirect.match for redirect in redirects if redirect.to == listener.bind),
            backends.get(listener.bind),
        )
        for listener in desired.listeners
    }


def ready_listeners(desired: Desired, actual: ActualState) -> frozenset[Endpoint]:
    """Return the listeners that are HAProxy's own, and whose relay address the node has.

    A listening socket outlives the address to which it is bound: then nothing reaches it.
    """
    try:
        held = {one.address for one in actual.addresses.ours}
    except ApplyError:
        return frozenset()
    ready = actual.components.relay.ready(desired.listeners)
    return frozenset(bind for bind in ready if bind.address in held)
