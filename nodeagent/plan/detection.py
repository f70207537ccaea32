"""Which load balancers send the PROXY line, and in which version."""

from dataclasses import dataclass

from nodeagent.config.options import LoadBalancerOptions
from nodeagent.model.objects import ProxyVersion, Service


@dataclass(frozen=True, slots=True)
class Detection:
    """What decided; `version` is None where the load balancer is not known to send the PROXY line."""

    version: ProxyVersion | None
    code: str
    reason: str


def detect(service: Service, options: LoadBalancerOptions) -> Detection:
    """Decides for one Service. `ignore` is stronger than `services`."""
    if any(entry.path == service.ref.path for entry in options.ignore):
        return Detection(None, "Ignored", "listed in loadBalancers.ignore")
    for entry in options.services:
        if entry.path == service.ref.path:
            version = entry.proxy_protocol
            return Detection(version, "Listed", f"PROXY {version}: listed in loadBalancers.services")
    return Detection(None, "NotProxy", "not known to send PROXY: not listed in loadBalancers.services")
