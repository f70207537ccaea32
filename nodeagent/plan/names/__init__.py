"""The hostnames of a load balancer: who claims them, and which of them are written. Pure."""
