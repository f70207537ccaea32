"""What the doctor finds: each code (docs/doctor-codes.md), and all findings in one sentence. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum, auto
from typing import Literal, Self

from msgspec import Struct


class CheckStatus(StrEnum):
    """The four words of the doctor."""

    PASS = "pass"  # noqa: S105 - no password
    AFFECTED = "affected"
    NOT_AFFECTED = "not-affected"
    CANNOT_TELL = "cannot-tell"


class Code(StrEnum):
    """The result: its check and, for that check, the status."""

    check: str
    status: CheckStatus

    def __new__(cls, name: str, check: str, status: CheckStatus) -> Self:
        """Return a member."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.check = check
        code.status = status
        return code

    @staticmethod
    def _generate_next_value_(name: str, *_: object) -> str:
        return name

    # A LoadBalancer Service, by its object and by the observations on this node.
    NotProxy = auto(), "load-balancer", CheckStatus.NOT_AFFECTED
    Ignored = auto(), "load-balancer", CheckStatus.NOT_AFFECTED
    IPModeProxy = auto(), "load-balancer", CheckStatus.NOT_AFFECTED
    NotShortCircuited = auto(), "load-balancer", CheckStatus.NOT_AFFECTED
    HostnameOnly = auto(), "load-balancer", CheckStatus.NOT_AFFECTED
    NoAddress = auto(), "load-balancer", CheckStatus.NOT_AFFECTED
    Tolerated = auto(), "load-balancer", CheckStatus.NOT_AFFECTED
    LoadBalancerRemedied = auto(), "load-balancer", CheckStatus.PASS
    ShortCircuited = auto(), "load-balancer", CheckStatus.AFFECTED
    IPModeIgnored = auto(), "load-balancer", CheckStatus.AFFECTED
    Troubled = auto(), "load-balancer", CheckStatus.AFFECTED
    ShortCircuitedByObject = auto(), "load-balancer", CheckStatus.AFFECTED
    TerminatesTLS = auto(), "load-balancer", CheckStatus.AFFECTED
    ProxyUnknown = auto(), "load-balancer", CheckStatus.CANNOT_TELL
    LoadBalancerUnclear = auto(), "load-balancer", CheckStatus.CANNOT_TELL
    ExternalIPs = auto(), "load-balancer", CheckStatus.CANNOT_TELL

    # One address and port of a load balancer, connected to from this node.
    ThroughLoadBalancer = auto(), "path", CheckStatus.NOT_AFFECTED
    ShortCircuitedAndFine = auto(), "path", CheckStatus.NOT_AFFECTED
    RemediedByDnat = auto(), "path", CheckStatus.PASS
    RemediedByHosts = auto(), "path", CheckStatus.PASS
    ShortCircuitedAndCut = auto(), "path", CheckStatus.AFFECTED
    Undetected = auto(), "path", CheckStatus.AFFECTED
    RelayDown = auto(), "path", CheckStatus.AFFECTED
    DnatBypassed = auto(), "path", CheckStatus.AFFECTED
    WrongVersion = auto(), "path", CheckStatus.AFFECTED
    ControllerWithoutProxy = auto(), "path", CheckStatus.AFFECTED
    WorksWithoutProxy = auto(), "path", CheckStatus.CANNOT_TELL
    ControllerDown = auto(), "path", CheckStatus.AFFECTED
    LoadBalancerDown = auto(), "path", CheckStatus.AFFECTED
    PathUnclear = auto(), "path", CheckStatus.CANNOT_TELL

    # The objects that this report is made from, and whether this machine is the node at all.
    ObjectsUnreadable = auto(), "objects", CheckStatus.CANNOT_TELL
    ObjectsSkipped = auto(), "objects", CheckStatus.CANNOT_TELL
    KindsNotRead = auto(), "objects", CheckStatus.CANNOT_TELL
    NotThisNode = auto(), "node", CheckStatus.CANNOT_TELL

    # What handles Services on this node.
    DataPlaneKnown = auto(), "data-plane", CheckStatus.PASS
    SocketBalancer = auto(), "data-plane", CheckStatus.AFFECTED
    DataPlaneUnclear = auto(), "data-plane", CheckStatus.CANNOT_TELL

    # What the agent of this node says, or the agents of all nodes.
    AgentInSync = auto(), "agent", CheckStatus.PASS
    AgentNotInSync = auto(), "agent", CheckStatus.AFFECTED
    AgentAbsent = auto(), "agent", CheckStatus.NOT_AFFECTED
    AgentUnknown = auto(), "agent", CheckStatus.CANNOT_TELL

    # Whether the pods of this node are served.
    PodsServed = auto(), "pods", CheckStatus.PASS
    PodsNotServed = auto(), "pods", CheckStatus.AFFECTED
    PodsUnclear = auto(), "pods", CheckStatus.CANNOT_TELL

    # A hostname: what the host's resolver, the upstream and CoreDNS answer; and what decides it on this node.
    NameAtLoadBalancer = auto(), "name", CheckStatus.PASS
    NameAtRelay = auto(), "name", CheckStatus.PASS
    NameElsewhere = auto(), "name", CheckStatus.NOT_AFFECTED
    NameDiffers = auto(), "name", CheckStatus.AFFECTED
    NameUnknown = auto(), "name", CheckStatus.AFFECTED
    NameUnclear = auto(), "name", CheckStatus.CANNOT_TELL
    StaleHostsLine = auto(), "name", CheckStatus.AFFECTED
    HairpinProxyLine = auto(), "name", CheckStatus.AFFECTED
    FilesNotFirst = auto(), "name", CheckStatus.AFFECTED


class Finding(Struct, frozen=True):
    """One check of one thing.

    `code` determines `check` and `status` (docs/doctor-codes.md). Lines of `remedy` that begin with `$ ` are
    commands, those that begin with two spaces are YAML; the first step is the best.
    """

    check: str
    code: str
    status: CheckStatus
    subject: str
    seen: str
    evidence: tuple[str, ...]
    remedy: tuple[str, ...]

    @classmethod
    def of(
        cls, code: Code, subject: str, seen: str, evidence: Iterable[str] = (), remedy: Iterable[str] = ()
    ) -> Self:
        """Return the finding on `subject`, as a person would look it up: a sentence, observations, steps."""
        return cls(code.check, code, code.status, subject, seen, (*evidence,), (*remedy,))


Overall = Literal["healthy", "affected", "cannot-tell"]

EXIT_CODES: Mapping[Overall, int] = {"healthy": 0, "affected": 2, "cannot-tell": 1}
# Without these, it is unknown whether the node is affected; anything else that is unknown changes nothing.
_DECISIVE = frozenset(
    {Code.ProxyUnknown, Code.LoadBalancerUnclear, Code.ExternalIPs, Code.PathUnclear, Code.ObjectsUnreadable}
)
_FINE = frozenset({Code.IPModeProxy, Code.NotShortCircuited, Code.HostnameOnly, Code.Tolerated})
# What says most about a cause comes first in the sentence.
_LEADING = (Code.ShortCircuited, Code.IPModeIgnored, Code.ShortCircuitedByObject)


def summarize(where: str, findings: Sequence[Finding]) -> tuple[Overall, str]:
    """Return what they mean for `where` ("node node1", "this cluster"), and the sentence that says so."""
    affected = [finding for finding in findings if finding.status is CheckStatus.AFFECTED]
    unknown = [finding for finding in findings if finding.code in _DECISIVE]
    overall: Overall
    if affected and all(finding.code == Code.ShortCircuitedByObject for finding in affected):
        overall = "affected"
        words = f" is affected, judging by its objects alone: {_affected(affected)}"
        if any(finding.code == Code.AgentInSync for finding in findings):  # and yet some of them are served
            words += "; nodeagent fleet shows how many load balancers each node serves"
    elif affected:
        overall, words = "affected", f" is affected and not fixed yet: {_affected(affected)}"
    elif unknown:
        overall, words = "cannot-tell", f": could not determine: {_first(unknown)}"
    else:
        overall, words = "healthy", f" {_healthy(findings)}"
    return overall, f"{where}{words}{_asides(findings)}"


def _asides(findings: Sequence[Finding]) -> str:
    unread = dict.fromkeys(
        finding.check
        for finding in findings
        if finding.status is CheckStatus.CANNOT_TELL and finding.code not in {*_DECISIVE, Code.NotThisNode}
    )
    return f"; unknown: {', '.join(unread)}" if unread else ""


def _first(findings: Sequence[Finding]) -> str:
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{findings[0].subject}: {findings[0].seen}{more}"


def _affected(affected: Sequence[Finding]) -> str:
    leading = [finding for finding in affected if finding.code in _LEADING]
    # A load balancer with another problem is reported by its path, which names the problem.
    rest = [finding for finding in affected if finding.code not in {*_LEADING, Code.Troubled}]
    causes = leading or rest or list(affected)
    first = causes[0]
    same = {finding.subject for finding in causes if finding.code == first.code} - {first.subject}
    also = f" (and {len(same)} more like it)" if same else ""
    return f"{first.subject}: {first.seen}{also}"


def _healthy(findings: Sequence[Finding]) -> str:
    codes = [finding.code for finding in findings]
    remedied = codes.count(Code.LoadBalancerRemedied)
    if remedied:
        balancers = "1 load balancer is" if remedied == 1 else f"{remedied} load balancers are"
        return f"is healthy: {balancers} short-circuited, and fixed by nodeagent"
    fine = [code for code in codes if code in _FINE]
    if fine and Code.NotThisNode in codes:  # judged by objects: no connection was made
        return "is not affected: no load balancer known to send the PROXY header is short-circuited"
    if fine:
        return "is not affected: its connections to PROXY load balancers work without a fix"
    if Code.NotProxy in codes or Code.NoAddress in codes or Code.Ignored in codes:
        but = ", besides those that are excluded" if Code.Ignored in codes else ""
        return f"is not affected: no load balancer with an address is known to send the PROXY header{but}"
    return "is not affected: the cluster has no load balancer"
