"""Programs that, in a cluster, are not those of nodeagent's image: kube-proxy's and the load balancer's."""

import os

ON_HOST = tuple(os.environ.get("ON_HOST", "").split())
"""What comes before them; empty, unless they are to be others (tests/testbed/kernels/on-host)."""
