"""What handles Services on this node, and whether nodeagent's DNAT serves its programs and pods. Pure."""

from nodeagent.doctor.findings import Code, Finding
from nodeagent.sources.node import Environment, KubeProxy

_DATA_PLANE = "data plane"
_PODS = "pods"
_TRY_FROM_A_POD = (
    "connect from a pod of this node to a hostname behind the load balancer:",
    "$ kubectl run test --rm -it --restart=Never --image=curlimages/curl -- curl -v http://HOSTNAME/",
    "if that is rejected, use the overlay cilium: its controllers let CoreDNS serve pods",
)


def data_plane_finding(
    rules: KubeProxy, environment: Environment, *, bypassed: bool | None, hosts_written: bool
) -> Finding:
    """Return what handles Services here, and whether DNAT sees this node's connections.

    Args:
        rules: the kernel's rules of kube-proxy.
        environment: the signs of what else there is.
        bypassed: whether connections pass by DNAT to the relay; None if that was not measured.
        hosts_written: whether nodeagent's block is in the hosts file.
    """
    cni = tuple(f"{name}: {sign}" for name, sign in environment.cni)
    evidence: tuple[str, ...] = (*(text for _, text in rules.modes), *cni)
    if rules.unreadable:
        evidence = (*evidence, f"kube-proxy's rules: {rules.unreadable}")
    handled = _handled_by(rules, environment)
    if environment.socket_balancer:
        evidence = (*evidence, f"socket load balancer: {environment.socket_balancer}")
    if bypassed is False:
        seen = f"{handled}; this node's connections arrive at the relay by DNAT"
        return Finding.of(Code.DataPlaneKnown, _DATA_PLANE, seen, evidence)
    if bypassed or environment.socket_balancer:
        seen = f"{handled}; connections are rewritten before the packet filter sees them: DNAT has no effect"
        if hosts_written:
            return Finding.of(
                Code.DataPlaneKnown, _DATA_PLANE, f"{seen}, hosts lines serve the node", evidence
            )
        remedy = ("use nodeagent's overlay cilium (docs/install.md), or ipMode: Proxy",)
        return Finding.of(
            Code.SocketBalancer, _DATA_PLANE, f"{seen}, only hosts lines can serve the node", evidence, remedy
        )
    if rules.modes and environment.socket_balancer is not None:
        return Finding.of(Code.DataPlaneKnown, _DATA_PLANE, handled, evidence)
    if environment.socket_balancer is None:
        handled += "; whether something rewrites connect() before the packet filter can't be seen from here"
        why = "/sys/fs/bpf: not mounted here, only for root, or without a trace of this CNI"
        evidence = (*evidence, why)
    as_root = ("run nodeagent doctor as root on the node",) if rules.unreadable else ()
    return Finding.of(Code.DataPlaneUnclear, _DATA_PLANE, handled, evidence, as_root)


def _handled_by(rules: KubeProxy, environment: Environment) -> str:
    if rules.modes:
        return f"kube-proxy, mode {', '.join(dict.fromkeys(mode for mode, _ in rules.modes))}"
    if environment.cni:
        return f"Services are handled by {', '.join(name for name, _ in environment.cni)}"
    if rules.unreadable:
        return "kube-proxy's rules could not be read"
    return "no rules of kube-proxy, and no known substitute"


def pods_finding(
    *, redirected: bool, bypassed: bool | None, by_kube_proxy: bool, by_coredns: bool | None, said: bool
) -> Finding:
    """Return the finding for a node on which nodeagent serves a load balancer.

    Args:
        redirected: whether DNAT for pods is active on this node.
        bypassed: whether something rewrites `connect()` before DNAT sees it; None if unknown.
        by_kube_proxy: whether kube-proxy, whose rules DNAT precedes, and nothing else handles Services here.
        by_coredns: whether CoreDNS answers a hostname with the relay's address; None if it could not be
            queried.
        said: whether the configuration says that CoreDNS serves pods (`coredns.servesPods`).
    """
    if redirected and bypassed is False and by_kube_proxy:
        return Finding.of(Code.PodsServed, _PODS, "served by DNAT, like the node itself")
    if by_coredns:
        return Finding.of(Code.PodsServed, _PODS, "served by CoreDNS: it answers with the relay's address")
    and_coredns = "" if by_coredns is None else ", and CoreDNS does not answer with the relay's address"
    if by_coredns is None and said:
        words = "left to CoreDNS, as coredns.servesPods says; CoreDNS could not be queried from here"
        return Finding.of(Code.PodsUnclear, _PODS, words, remedy=_TRY_FROM_A_POD)
    if redirected and not bypassed:
        words = (
            "there is DNAT for them, but another data plane than kube-proxy's may handle their connections "
            f"before it{and_coredns}"
        )
        return Finding.of(Code.PodsUnclear, _PODS, words, remedy=_TRY_FROM_A_POD)
    why = "DNAT does not see their connections" if redirected else "there is no DNAT for them"
    return Finding.of(
        Code.PodsNotServed,
        _PODS,
        f"not served, including cert-manager's: {why}{and_coredns}",
        remedy=(
            "let CoreDNS serve them: the overlay cilium contains the controller for it (docs/coredns.md)",
            "or, without nodeagent: use ipMode: Proxy, or a hostname instead of the address",
        ),
    )
