"""The relay on this node: HAProxy, one `listen` per port of a load balancer, which adds the PROXY line."""

from nodeagent.appliers.relay.applier import RelayApplier
from nodeagent.appliers.relay.state import RelayChange, RelayState

__all__ = ["RelayApplier", "RelayChange", "RelayState"]
