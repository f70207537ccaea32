"""The components that a configuration requires, their actual state, and the status of listeners.

Each state is read at most once while it holds.
"""

from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from typing import Generic, Literal, cast

from msgspec import Struct

from nodeagent.components.addresses.component import Addresses
from nodeagent.components.component import (
    Change,
    Component,
    ComponentName,
    DetailT_co,
    Half,
    PartlyAppliedError,
    State,
    StateT_co,
)
from nodeagent.components.dnat.component import Dnat
from nodeagent.components.hosts.component import Hosts
from nodeagent.components.relay.component import Relay
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


class Known(Generic[StateT_co, DetailT_co]):
    """A component and its actual state, read when it is first needed unless it is given, then kept."""

    def __init__(self, component: Component[StateT_co, DetailT_co], state: StateT_co | None = None) -> None:
        self._component = component
        self._state = state
        self._begun: Future[StateT_co] | None = None

    def begin(self, meanwhile: Executor) -> None:
        """Read the state in a thread; `state` waits for it."""
        self._begun = meanwhile.submit(self._component.read)

    def state(self) -> StateT_co:
        """Return the state; raises ApplyError if it can't be read."""
        if self._state is None:
            begun, self._begun = self._begun, None
            self._state = begun.result() if begun else self._component.read()
        return self._state

    def change(self, desired: Desired) -> Change[StateT_co, DetailT_co]:
        """Return the change to the desired state; raises ApplyError."""
        return self._component.diff(self.state(), desired)

    def apply(self, half: Literal["grow", "shrink"], desired: Desired) -> Half[StateT_co]:
        """Apply one half of the change to the desired state, and return it.

        Raises:
            PartlyAppliedError: only a part was applied.
            ApplyError: it was not applied; the next `state` is read again.
        """
        change = self.change(desired)
        self._state = None
        applied = change.grow if half == "grow" else change.shrink
        try:
            self._state = applied.apply()
        except PartlyAppliedError as error:
            self._state = cast("StateT_co", error.state)  # it is the component's own
            raise
        return applied


class ActualState:
    """The actual state of each component, for one pass or command: the next sees what changes meanwhile."""

    def __init__(self, components: Components) -> None:
        self.components = components
        self.addresses = Known(components.addresses)
        self.relay = Known(components.relay)
        self.dnat = Known(components.dnat)
        self.hosts = Known(components.hosts)

    def __getitem__(self, name: ComponentName) -> Known[State, object]:
        return cast("Known[State, object]", getattr(self, name))


class ListenerStatus(Struct, frozen=True, rename="camel"):
    """One relay listener of a served load balancer: its actual state on the node, as `status` shows it.

    `answers`: it is HAProxy's own socket, on an address that the node has. `redirected` are the load
    balancer's endpoints whose traffic DNAT sends here, null if the rules could not be read; `backend` is
    HAProxy's health check of the ingress controller, null if HAProxy reports none.
    """

    relay: str
    answers: bool
    redirected: tuple[str, ...] | None
    backend: str | None


def read_listener_status(desired: Desired, actual: ActualState) -> dict[Endpoint, ListenerStatus]:
    """Return the state of the desired listeners, by the kernel, HAProxy and the DNAT backend.

    Changes nothing. An address that can't be read counts as missing: the comparison reports the error.
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
    redirects = None
    with suppress(ApplyError):
        state = actual.dnat.state()
        redirects = None if state.unreadable else state.rules.redirects
    return {
        listener.bind: ListenerStatus(
            str(listener.bind),
            listener.bind in answering,
            None
            if redirects is None
            else tuple(str(one.match) for one in redirects if one.to == listener.bind),
            backends.get(listener.bind),
        )
        for listener in desired.listeners
    }


def ready_listeners(desired: Desired, actual: ActualState) -> frozenset[Endpoint]:
    """Return the listeners that are HAProxy's own, and whose relay address the node has.

    A listening socket outlives the address to which it is bound: then nothing reaches it.
    """
    try:
        held = {one.address for one in actual.addresses.state().ours}
    except ApplyError:
        return frozenset()
    ready = actual.components.relay.ready(desired.listeners)
    return frozenset(bind for bind in ready if bind.address in held)
