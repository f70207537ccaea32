"""How the node is wired, its hosts file included, and whether a fix can take effect on it. Pure."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from nodeagent.doctor.findings import CheckVerdict, Code, Finding
from nodeagent.model.desired import Desired, Verdict
from nodeagent.model.facts import UserHostsLine
from nodeagent.sources.node.environment import Environment, HostsFileState
from nodeagent.sources.node.service_proxy import KubeProxy

_STUBS = frozenset({"127.0.0.53", "127.0.0.54"})


def wiring_findings(  # noqa: PLR0913 - what a node is made of
    rules: KubeProxy,
    environment: Environment,
    *,
    mounted: bool,
    hosts_written: bool,
    bypassed: bool | None = None,
    unused: AbstractSet[str] = frozenset(),
) -> list[Finding]:
    """Return a finding for each part of the node.

    What is in the way of a fix that this node does not use is none.

    Args:
        rules: the kernel's rules.
        environment: the node's system.
        mounted: whether the hosts file is a mount point.
        hosts_written: whether nodeagent's block is in the hosts file.
        bypassed: whether connections pass by DNAT to the relay; None if that was not measured.
        unused: the checks of parts that nodeagent does not use on this node, nor would use.
    """
    found = [
        _kube_proxy(rules, environment),
        _cni(environment, hosts_written=hosts_written, bypassed=bypassed),
        _packet_filter(environment),
        _hosts_file(environment.hosts, mounted=mounted),
        _name_order(environment),
        _resolver(environment),
        _selinux(environment.selinux),
    ]
    return [
        finding
        for finding in found
        if finding.verdict is not CheckVerdict.AFFECTED or finding.check not in unused
    ]


def _kube_proxy(rules: KubeProxy, environment: Environment) -> Finding:
    if rules.modes:
        modes = ", ".join(dict.fromkeys(mode for mode, _ in rules.modes))
        evidence = tuple(text for _, text in rules.modes)
        return Finding(Code.KubeProxyFound, "kube-proxy", f"mode {modes}", evidence)
    if rules.unreadable:
        remedy = ("run nodeagent doctor as root on the node",)
        return Finding(Code.KubeProxyUnreadable, "kube-proxy", rules.unreadable, remedy=remedy)
    replaced = ", ".join(f"{name} ({sign})" for name, sign in environment.cni)
    seen = f"none of its rules exist; Services are handled by {replaced}"
    return Finding(
        Code.KubeProxyAbsent, "kube-proxy", seen if replaced else "no rules or known substitute found"
    )


def _cni(environment: Environment, *, hosts_written: bool, bypassed: bool | None) -> Finding:
    evidence = tuple(f"{name}: {sign}" for name, sign in environment.cni)
    if bypassed is False:
        seen = "none rewrites connect() here: this node's connections arrive at the relay by DNAT"
        return Finding(Code.NoSocketBalancer, "CNI", seen, evidence)
    if environment.socket_balancer:
        evidence = (*evidence, f"socket load balancer: {environment.socket_balancer}")
    if environment.socket_balancer or bypassed:
        if hosts_written:
            seen = "rewrites connect() before netfilter: DNAT does not see it, hosts lines serve the node"
            return Finding(Code.SocketBalancerByHosts, "CNI", seen, evidence)
        seen = (
            "rewrites connect() before netfilter: DNAT does not see it, only hosts lines can serve the node"
        )
        remedy = ("use nodeagent's overlay cilium (docs/install.md), or ipMode: Proxy",)
        return Finding(Code.SocketBalancer, "CNI", seen, evidence, remedy)
    if environment.socket_balancer is None:
        seen = (
            "whether a load balancer rewrites connect() can't be seen from here, and no connection showed it"
        )
        why = "/sys/fs/bpf: not mounted here, only for root, or without a trace of this CNI"
        return Finding(Code.SocketBalancerUnclear, "CNI", seen, (*evidence, why))
    seen = "no sign of a load balancer that rewrites connect()"
    return Finding(Code.NoSocketBalancer, "CNI", seen, evidence)


def _packet_filter(environment: Environment) -> Finding:
    found = "; ".join(text for text in (environment.nft, environment.iptables) if text)
    if environment.nft:
        return Finding(Code.PacketFilter, "packet filter", found)
    seen = "neither nft nor iptables: DNAT is not possible"
    remedy = "install nftables, or serve the node by hosts lines alone: dnat.backend: none"
    if environment.iptables:
        seen = f"no nft program; {environment.iptables}"
        remedy = (
            "install nftables, or leave dnat.backend at auto: it uses legacy iptables, if the kernel has it"
        )
    return Finding(Code.NoPacketFilter, "packet filter", seen, remedy=(remedy,))


def _hosts_file(hosts: HostsFileState, *, mounted: bool) -> Finding:
    subject = str(hosts.path)
    if hosts.unreadable:
        return Finding(Code.HostsUnreadable, subject, hosts.unreadable)
    by_dnat = "serve the node by DNAT alone: hosts.enabled: false"
    if hosts.link:
        seen = f"a symbolic link to {hosts.link}: the distribution creates it, nodeagent does not change it"
        return Finding(Code.HostsSymlink, subject, seen, remedy=(by_dnat,))
    if hosts.immutable:
        seen = "immutable (chattr +i): no program can write it"
        remedy = (f"$ chattr -i {subject}", f"or {by_dnat}")
        return Finding(Code.HostsImmutable, subject, seen, remedy=remedy)
    if hosts.read_only:
        seen = "on a file system that is mounted read-only"
        return Finding(Code.HostsReadOnly, subject, seen, remedy=(by_dnat,))
    if mounted:
        return Finding(Code.HostsMounted, subject, "a mount of its own: nodeagent writes it in place")
    return Finding(Code.HostsWritable, subject, "an ordinary file: nodeagent replaces it in one step")


def _name_order(environment: Environment) -> Finding:
    order = environment.name_order
    subject = "order of name sources"
    if not order:
        why = "nsswitch.conf can't be read" if order is None else "nsswitch.conf has no line for hosts"
        seen = f"{why}: glibc then asks DNS first, musl and Go read the hosts file first"
        return Finding(Code.NameOrderUnreadable, subject, seen)
    seen = f"hosts: {' '.join(order)}"
    first = next((source for source in order if source in {"files", "dns", "resolve"}), "")
    # nss-resolve reads the hosts file itself (systemd-resolved.service(8), ReadEtcHosts=).
    if first in {"files", "resolve"}:
        return Finding(Code.FilesFirst, subject, seen)
    seen += ": DNS answers before the hosts file, so hosts lines have no effect"
    remedy = ("move files before dns in the hosts line of /etc/nsswitch.conf, or rely on DNAT alone",)
    return Finding(Code.FilesNotFirst, subject, seen, remedy=remedy)


def _resolver(environment: Environment) -> Finding:
    if environment.name_servers is None:
        return Finding(Code.ResolverUnreadable, "resolv.conf", "can't be read")
    servers = ", ".join(environment.name_servers) or "none"
    evidence = (f"a link to {environment.resolv_link}",) if environment.resolv_link else ()
    if _STUBS.intersection(environment.name_servers) or "systemd/resolve" in environment.resolv_link:
        return Finding(Code.ResolverSystemd, "resolv.conf", f"systemd-resolved ({servers})", evidence)
    return Finding(Code.ResolverPlain, "resolv.conf", f"name servers {servers}", evidence)


def _selinux(state: str) -> Finding:
    if state == "enforcing":
        seen = "enforcing: a container needs permission to write /etc (docs/install.md, component selinux)"
        return Finding(Code.SelinuxEnforcing, "SELinux", seen)
    return Finding(Code.SelinuxPermissive if state == "permissive" else Code.SelinuxOff, "SELinux", state)


_LEFT_TO_OTHERS = frozenset({"Excluded", "ExcludedByAnnotation", "OtherLoadBalancer"})


def right_addresses(desired: Desired) -> dict[str, frozenset[str]]:
    """Return the addresses that are right for each load balancer's hostname: its own, and its relay's.

    A claim that nodeagent rejects says nothing about the user's lines: anyone can claim `localhost`. The same
    applies to hostnames that someone excluded.
    """
    decided = {decision.load_balancer: decision for decision in desired.load_balancers}
    found: dict[str, frozenset[str]] = {}
    for name in desired.names:
        if name.load_balancer is None or name.verdict is Verdict.REFUSED or name.code in _LEFT_TO_OTHERS:
            continue
        decision = decided[name.load_balancer]
        right = map(str, (*decision.addresses, *decision.relay_addresses))
        found[name.name] = found.get(name.name, frozenset()).union(right)
    return found


def hosts_line_findings(
    user_names: Mapping[str, UserHostsLine], names: Mapping[str, frozenset[str]], file: str
) -> list[Finding]:
    """Judge the user's own lines.

    Args:
        user_names: the hostnames that the hosts file sets outside the managed block.
        names: the hostnames of load balancers, each with the addresses (as text) that are right for it.
        file: the hosts file, for a person.
    """
    found = []
    for name in sorted(names):
        line = user_names.get(name)
        if line is None or line.address in names[name]:
            continue
        remedy: tuple[str, ...]
        if line.by_hairpin_proxy:
            code, seen = Code.HairpinProxyLine, f"hairpin-proxy's old line sends {name} to {line.address}"
            remedy = ("let nodeagent replace it", "$ nodeagent apply --adopt")
        else:
            code = Code.StaleHostsLine
            seen = f"sends {name} to {line.address}, which is not an address of its load balancer"
            remedy = (f"remove line {line.line_number} of {file}, unless it is there on purpose",)
        found.append(Finding(code, f"{file}:{line.line_number}", seen, remedy=remedy))
    clean = "no line outside the managed block leads a hostname to a wrong address"
    return found or [Finding(Code.HostsLinesClean, file, clean)]
