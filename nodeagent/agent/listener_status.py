"""The actual state of each desired listener: for a pass, and for `nodeagent status`."""

from msgspec import Struct

from nodeagent.components.node import ActualState
from nodeagent.components.relay.haproxy_sockets import Unreachable
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired


class ListenerStatus(Struct, frozen=True):
    """One listener: whether it answers, what is redirected to it, and the health of what is behind it.

    `backend` is HAProxy's word for the ingress controller's state; None where HAProxy does not tell.
    """

    bind: Endpoint
    answers: bool
    redirected: tuple[Endpoint, ...]
    backend: str | None


def read_listener_status(desired: Desired, actual: ActualState) -> dict[Endpoint, ListenerStatus]:
    """Asks the kernel and HAProxy whose the desired listeners are, the DNAT backend, HAProxy's statistics.

    Changes nothing. What can't be read counts as not standing: the comparison tells the error.
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

    A listening socket outlives the address that it is bound to: nothing reaches it then.
    """
    try:
        held = {one.address for one in actual.addresses.ours}
    except ApplyError:
        return frozenset()
    ready = actual.components.relay.ready(desired.listeners)
    return frozenset(bind for bind in ready if bind.address in held)
