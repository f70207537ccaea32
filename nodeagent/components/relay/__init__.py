"""The relay on this node: HAProxy, one `listen` per port of a load balancer, which adds the PROXY header."""
