"""Whose load balancer a Service is, how that is known, and what follows. Pure; begins at identify.py."""
