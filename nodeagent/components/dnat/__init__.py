"""DNAT from a load balancer's address to the relay: one interface, a backend for each kernel machinery."""
