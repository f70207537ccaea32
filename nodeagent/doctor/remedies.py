"""What to do about a short circuit, the best first: what needs no agent, where the provider has it. Pure."""

import re
import shlex

from nodeagent.model.objects import Node, Service
from nodeagent.plan.detection.providers import PROVIDERS
from nodeagent.plan.detection.readers import Provider

_IP_MODE_SINCE = (1, 30)
"""Kubernetes 1.30 has the feature gate LoadBalancerIPMode on by default; 1.32 for good (KEP-1860)."""
_SIDE_EFFECTS = (
    "(what else that changes: Service and Ingresses show the hostname in place of the address, external-dns "
    "makes aliases of it, and what nodes and pods send goes out to the load balancer and comes back)"
)
_PLACEHOLDER = "lb.example.com"
_BY_POLICY = (
    "without an agent: let a policy of the API server set ipMode: Proxy (docs/without-an-agent.md says when)",
    "$ nodeagent doctor --policy > policy.yaml",
)


def provider_of(service: Service, node: Node | None) -> Provider | None:
    """Whose load balancer it is: by an annotation that only one provider knows, else by the node's cloud."""
    of_kind = [provider for provider in PROVIDERS if provider.applies(service)]
    for provider in of_kind:
        keys = (switch.key.partition("{port}")[0] for switch in provider.switches)
        if any(known.startswith(key) for key in keys for known in service.annotations):
            return provider
    scheme = node.provider_id.partition("://")[0] if node and "://" in node.provider_id else ""
    return next((provider for provider in of_kind if scheme in provider.schemes), None)


def remedies(
    service: Service, provider: Provider | None, kubernetes: str, policy_api: str = ""
) -> tuple[str, ...]:
    """The ways out, the best first.

    Args:
        service: the load balancer.
        provider: whose it is; None where that is not known.
        kubernetes: the cluster's version, such as v1.33.2; empty where it is not known.
        policy_api: the version in which it serves MutatingAdmissionPolicies; empty where it does not.
    """
    return (
        *_by_ip_mode(service, provider, kubernetes),
        *_by_hostname(service, provider),
        *(_BY_POLICY if policy_api else ()),
        "on the nodes: install nodeagent, which needs nothing from the provider (docs/install.md)",
    )


def _by_ip_mode(service: Service, provider: Provider | None, kubernetes: str) -> list[str]:
    if honours_ip_mode(kubernetes) is False:
        return [
            f"ipMode: Proxy would end it, but Kubernetes {kubernetes} does not know it: 1.30 and later do"
        ]
    since = "" if kubernetes else ", on Kubernetes 1.30 and later"
    if provider is None:
        return [f"without an agent{since}: if the cloud's controller can set ipMode: Proxy, switch that on"]
    lines = []
    if provider.remedies.ip_mode:
        lines.append(
            f"without an agent{since}: let the cloud's controller set ipMode: Proxy "
            f"({provider.remedies.ip_mode})"
        )
    if provider.remedies.ip_mode_on_request:
        lines.append(f"without an agent{since}: ask {provider.name}'s controller for ipMode: Proxy")
        lines.append(annotate(service, provider.remedies.ip_mode_on_request))
    return lines


def _by_hostname(service: Service, provider: Provider | None) -> list[str]:
    hostname = provider.remedies.hostname if provider else ""
    if not hostname:
        return []
    what = "without an agent: publish a hostname in place of the address"
    if _PLACEHOLDER in hostname:
        addresses = ", ".join(str(address) for address in service.load_balancer_ips) or "its address"
        what += f"; first give a name of your own an address record with {addresses}, and write it here"
    return [what, annotate(service, hostname), _SIDE_EFFECTS]


def annotate(service: Service, annotation: str) -> str:
    """The command, ready to paste, for an annotation in YAML (`key: "value"`)."""
    key, _, value = annotation.partition(": ")
    pair = shlex.quote(f"{key}={value.strip(chr(34))}")
    return f"$ kubectl annotate service -n {service.ref.namespace} {service.ref.name} {pair}"


def honours_ip_mode(kubernetes: str) -> bool | None:
    """Whether a kube-proxy of the cluster's version honours ipMode; None where the version is not known."""
    found = re.match(r"v?(\d+)\.(\d+)", kubernetes)
    return (int(found[1]), int(found[2])) >= _IP_MODE_SINCE if found else None
