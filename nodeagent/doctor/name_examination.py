"""Looks at names and at what is pulled by them. EFFECTS: asks resolvers and a registry; changes nothing."""

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nodeagent.config.options import DNS_PORT
from nodeagent.doctor.codes import Code
from nodeagent.doctor.finding import Finding
from nodeagent.doctor.images import image_findings, registry_of
from nodeagent.doctor.names import NameObservation
from nodeagent.doctor.pull import pull_finding
from nodeagent.doctor.question import Question
from nodeagent.doctor.targets import published_names
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.dns import DnsReply
from nodeagent.sources.node.name_resolution import HostResolver
from nodeagent.sources.probes.connection_tests import verifying_context
from nodeagent.sources.probes.image_pull import rehearse

_RUNTIME_SETTINGS = "containerd/certs.d"
_AT_ONCE = 16


def observe_names(
    question: Question, hosts: Collection[str], led_to: dict[str, tuple[IPAddress, ...]]
) -> list[NameObservation]:
    """Asks for each of `hosts` in three ways; `led_to` is what this host's resolver said of them."""
    # dnspython costs 0.07 s to import: only where names are asked.
    from nodeagent.sources.dns import Resolver  # noqa: PLC0415
    from nodeagent.sources.node.name_resolution import Upstreams, find_upstreams  # noqa: PLC0415

    upstream = _answers(hosts, Resolver(lambda: find_upstreams(question.config.hosts)).ask)
    dns = question.cluster.dns
    cluster: dict[str, DnsReply] = {}
    if dns is not None:
        cluster = _answers(hosts, Resolver(lambda: Upstreams((Endpoint(dns, DNS_PORT),))).ask)
    decisions = question.desired.load_balancers
    addresses = [address for decision in decisions for address in decision.addresses]
    return [
        NameObservation(
            name=name,
            host=led_to.get(name, ()),
            upstream=reply,
            cluster=cluster.get(name),
            cluster_why=f"not asked: {question.cluster.reason('dns')}",
            load_balancers=frozenset((*addresses, *_published(led_to, question))),
            relays=frozenset(one for decision in decisions for one in decision.relay_addresses),
        )
        for name, reply in upstream.items()
    ]


def _answers(names: Iterable[str], ask: Callable[[str], DnsReply]) -> dict[str, DnsReply]:
    """Asks for all names at a time: a dead server costs its time once."""
    wanted = list(dict.fromkeys(names))
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return dict(zip(wanted, pool.map(ask, wanted), strict=True))


def _published(led_to: dict[str, tuple[IPAddress, ...]], question: Question) -> list[IPAddress]:
    return [
        address for name in published_names(question.snapshot.services) for address in led_to.get(name, ())
    ]


def examine_images(question: Question, balancers: Iterable[Finding], resolver: HostResolver) -> list[Finding]:
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
    for registry, led_to in resolver.resolve_all(registries - behind.keys()).items():
        for address in led_to:
            if address in addresses:
                behind[registry] = addresses[address]
    return image_findings(pods, behind)


def rehearse_pull(question: Question) -> list[Finding]:
    """Rehearses the pull that was asked for, if any was."""
    image = question.image
    if image is None:
        return []
    hosts_file = Path(question.config.hosts.file)
    settings = hosts_file.parent / _RUNTIME_SETTINGS / image.authority / "hosts.toml"
    return [
        pull_finding(
            str(image),
            rehearse(image, HostResolver(hosts_file).resolve, verifying_context(hosts_file.parent)),
            str(settings) if settings.exists() else "",
        )
    ]
