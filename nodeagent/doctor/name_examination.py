"""Looks at names and at what is pulled by them. EFFECTS: asks resolvers and a registry; changes nothing."""

from collections.abc import Iterable
from pathlib import Path

from nodeagent.config.options import DNS_PORT
from nodeagent.doctor.codes import Code
from nodeagent.doctor.finding import Finding
from nodeagent.doctor.images import image_findings, registry_of
from nodeagent.doctor.names import NameObservation, name_finding
from nodeagent.doctor.pull import pull_finding
from nodeagent.doctor.question import Question
from nodeagent.doctor.targets import published_names
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.sources.node.host_resolver import resolve
from nodeagent.sources.probes.registry import rehearse

_RUNTIME_SETTINGS = "containerd/certs.d"


def examine_names(
    question: Question, hosts: Iterable[str], led_to: dict[str, tuple[IPAddress, ...]]
) -> list[Finding]:
    """Asks for each of `hosts` in three ways; `led_to` is what this host's resolver said of them."""
    # dnspython costs 0.07 s to import: only where names are asked.
    from nodeagent.sources.dns.asking import Resolver  # noqa: PLC0415
    from nodeagent.sources.dns.upstreams import Upstreams, find_upstreams  # noqa: PLC0415

    upstream = Resolver(lambda: find_upstreams(question.config.hosts))
    dns = question.cluster.dns
    cluster = None if dns is None else Resolver(lambda: Upstreams((Endpoint(dns, DNS_PORT),)))
    decisions = question.desired.load_balancers
    return [
        name_finding(
            NameObservation(
                name=name,
                host=led_to.get(name, ()),
                upstream=upstream.ask(name),
                cluster=None if cluster is None else cluster.ask(name),
                cluster_why=f"not asked: {question.cluster.reason('dns')}",
                load_balancers=frozenset(
                    (
                        *(one for decision in decisions for one in decision.addresses),
                        *_published(led_to, question),
                    )
                ),
                relays=frozenset(one for decision in decisions for one in decision.relay_addresses),
            )
        )
        for name in dict.fromkeys(hosts)
    ]


def _published(led_to: dict[str, tuple[IPAddress, ...]], question: Question) -> list[IPAddress]:
    return [
        address for name in published_names(question.snapshot.services) for address in led_to.get(name, ())
    ]


def examine_images(question: Question, balancers: Iterable[Finding]) -> list[Finding]:
    """Looks for registries behind the load balancers of which `balancers` tell."""
    pods = question.cluster.pods
    if pods is None:
        seen = f"the pods of this node are not known: {question.cluster.reason('pods')}"
        return [Finding(Code.ImagesUnknown, "images", seen)]
    by_path = {finding.subject: finding.code for finding in balancers}
    behind = {
        name.name: by_path[name.load_balancer.path]
        for name in question.desired.names
        if name.load_balancer is not None
    }
    addresses = {
        address: by_path[decision.load_balancer.path]
        for decision in question.desired.load_balancers
        for address in (*decision.addresses, *decision.relay_addresses)
    }
    registries = {registry_of(image).partition(":")[0] for pod in pods for image in pod.images}
    for registry in registries - behind.keys():
        for address in resolve(registry):
            if address in addresses:
                behind[registry] = addresses[address]
    return image_findings(pods, behind)


def rehearse_pull(question: Question) -> list[Finding]:
    """Rehearses the pull that was asked for, if any was."""
    image = question.image
    if image is None:
        return []
    settings = Path(question.config.hosts.file).parent / _RUNTIME_SETTINGS / image.authority / "hosts.toml"
    return [pull_finding(str(image), rehearse(image, resolve), str(settings) if settings.exists() else "")]
