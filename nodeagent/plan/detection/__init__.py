"""Which load balancers send the PROXY header, on which ports, in which version, and what says so. Pure.

Start reading at decision.py; providers.py is the table of what each cloud's annotations mean.
"""
