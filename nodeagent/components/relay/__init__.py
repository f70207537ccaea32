"""The relay on this node: HAProxy, one `listen` per port of a load balancer, which adds the PROXY header."""

from nodeagent.components.relay.component import Relay
from nodeagent.components.relay.state import RelayChange, RelayState

__all__ = ["Relay", "RelayChange", "RelayState"]
