"""How many hostnames are taken on: in total, and of one namespace. The oldest claims come first."""

from nodeagent.config.options import LimitOptions


class Allowance:
    """What is left, as one claim after the other takes its part: ask for the oldest first.

    Args:
        limits: the options.
    """

    def __init__(self, limits: LimitOptions) -> None:
        self._limits = limits
        self._names: set[str] = set()
        self._by_namespace: dict[str, set[str]] = {}

    def refusal(self, namespace: str, name: str) -> tuple[str, str] | None:
        """Takes the name on for the namespace, or gives code and reason why it is not. Idempotent."""
        own = self._by_namespace.setdefault(namespace, set())
        if name not in own and len(own) >= self._limits.hostnames_per_namespace:
            reason = (
                f"namespace {namespace} has {len(own)} older hostnames (limits.hostnamesPerNamespace): DNAT "
                "alone serves this one"
            )
            return "TooManyHostnamesInNamespace", reason
        if name not in self._names and len(self._names) >= self._limits.hostnames:
            reason = f"{len(self._names)} hostnames are older (limits.hostnames): DNAT alone serves this one"
            return "TooManyHostnames", reason
        own.add(name)
        self._names.add(name)
        return None
