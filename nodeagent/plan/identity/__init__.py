"""Whose load balancer it is: which controller serves a Service, how that is known, and what follows. Pure.

Start reading at identify.py; providers.py is the table of the controllers, one row each.
"""
