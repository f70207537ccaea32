"""What of a plan is the DNAT backend's. Pure."""

from nodeagent.appliers.dnat.interface import DnatDesired
from nodeagent.model.desired import Desired


def redirection(desired: Desired) -> DnatDesired:
    """The redirects with the pods they hold for, and the guard."""
    return DnatDesired(desired.redirects, desired.pod_cidrs, desired.guarded, desired.admitted)
