"""Pure: which load balancers send the PROXY line, on which ports, in which version, and who said so.

Start reading at decision.py; providers.py is the table of what each cloud's annotations mean.
"""
