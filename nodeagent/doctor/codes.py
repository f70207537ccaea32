"""Every code that the doctor can give, its check and its verdict. docs/doctor.md explains each."""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Final


class CheckVerdict(StrEnum):
    """The five words of the doctor."""

    PASS = "pass"  # noqa: S105 - no password
    """Looked at, and as it should be; also what is remedied."""
    AFFECTED = "affected"
    """Something is cut or stands in the way: `remedy` says what to do."""
    WARNING = "warning"
    """Not well, and not the short circuit's or nodeagent's doing: it leaves the exit code as it is."""
    NOT_AFFECTED = "not-affected"
    """The trouble can't arise here."""
    CANNOT_TELL = "cannot-tell"
    """It could not be looked at, or what was seen has no known meaning."""


class Code(StrEnum):
    """What was found. A code belongs to one check and settles the verdict: `CATALOGUE`."""

    @staticmethod
    def _generate_next_value_(name: str, *_: object) -> str:
        return name

    @property
    def check(self) -> str:
        """The id of the check that gives it."""
        return _PLACES[self][0]

    @property
    def verdict(self) -> CheckVerdict:
        """The word for it."""
        return _PLACES[self][1]

    # A LoadBalancer Service, by its object and by what was seen on this node.
    NotProxy = auto()
    Ignored = auto()
    IPModeProxy = auto()
    HostnameOnly = auto()
    NoAddress = auto()
    Tolerated = auto()
    LoadBalancerRemedied = auto()
    ShortCircuited = auto()
    IPModeIgnored = auto()
    Troubled = auto()
    ShortCircuitedByObject = auto()
    LoadBalancerUnclear = auto()

    # One address and port of a load balancer, connected to from this node.
    ThroughLoadBalancer = auto()
    ShortCircuitedAndFine = auto()
    RemediedByDnat = auto()
    RemediedByHosts = auto()
    ShortCircuitedAndCut = auto()
    Undetected = auto()
    RelayDown = auto()
    WrongVersion = auto()
    ControllerWithoutProxy = auto()
    ControllerDown = auto()
    LoadBalancerDown = auto()
    LoadBalancerCut = auto()
    PathUnclear = auto()

    # The certificate shown for a name behind a load balancer.
    CertificateValid = auto()
    CertificateExpired = auto()
    CertificateForeign = auto()
    CertificateWrongName = auto()
    CertificateUnknown = auto()

    # Whether this machine is the node at all.
    NotThisNode = auto()

    # Who serves the pods of this node.
    PodsByDnat = auto()
    PodsByCoreDns = auto()
    PodsLeftToCoreDns = auto()
    PodsNotServed = auto()

    # Who short-circuits.
    KubeProxyFound = auto()
    KubeProxyAbsent = auto()
    KubeProxyUnreadable = auto()
    NoSocketBalancer = auto()
    SocketBalancer = auto()
    SocketBalancerByHosts = auto()
    PacketFilter = auto()
    NoPacketFilter = auto()

    # The hosts file and who reads it.
    HostsWritable = auto()
    HostsMounted = auto()
    HostsSymlink = auto()
    HostsImmutable = auto()
    HostsReadOnly = auto()
    HostsUnreadable = auto()
    FilesFirst = auto()
    FilesNotFirst = auto()
    NameOrderUnreadable = auto()
    ResolverPlain = auto()
    ResolverSystemd = auto()
    ResolverUnreadable = auto()
    SelinuxOff = auto()
    SelinuxPermissive = auto()
    SelinuxEnforcing = auto()

    # What nodeagent keeps on this node.
    AgentAbsent = auto()
    AgentInSync = auto()
    AgentDrifted = auto()
    AgentUnreadable = auto()
    RelayAnswers = auto()
    RelaySilent = auto()
    DnatFirst = auto()
    DnatOvertaken = auto()
    DnatUnreadable = auto()
    HostsLinesClean = auto()
    StaleHostsLine = auto()
    HairpinProxyLine = auto()
    ImagesElsewhere = auto()
    ImagesRemedied = auto()
    ImagesCut = auto()
    RebootTrap = auto()
    ImagesUnknown = auto()

    # A name: what the host's resolver, the upstream and CoreDNS answer.
    NameAtLoadBalancer = auto()
    NameAtRelay = auto()
    NameElsewhere = auto()
    NameDiffers = auto()
    NameUnknown = auto()
    NameUnclear = auto()

    # The rehearsal of an image pull.
    PullWorks = auto()
    PullName = auto()
    PullConnect = auto()
    PullCut = auto()
    PullCertificate = auto()
    PullNotRegistry = auto()
    PullCredentials = auto()
    PullManifest = auto()
    PullLayer = auto()


CATALOGUE: Final[Mapping[str, Mapping[CheckVerdict, tuple[Code, ...]]]] = {
    "load-balancer": {
        CheckVerdict.NOT_AFFECTED: (
            Code.NotProxy,
            Code.Ignored,
            Code.IPModeProxy,
            Code.HostnameOnly,
            Code.NoAddress,
            Code.Tolerated,
        ),
        CheckVerdict.PASS: (Code.LoadBalancerRemedied,),
        CheckVerdict.AFFECTED: (Code.ShortCircuited, Code.IPModeIgnored, Code.Troubled),
        CheckVerdict.CANNOT_TELL: (Code.ShortCircuitedByObject, Code.LoadBalancerUnclear),
    },
    "path": {
        CheckVerdict.NOT_AFFECTED: (Code.ThroughLoadBalancer, Code.ShortCircuitedAndFine),
        CheckVerdict.PASS: (Code.RemediedByDnat, Code.RemediedByHosts),
        CheckVerdict.AFFECTED: (
            Code.ShortCircuitedAndCut,
            Code.Undetected,
            Code.RelayDown,
            Code.WrongVersion,
            Code.ControllerWithoutProxy,
            Code.ControllerDown,
            Code.LoadBalancerDown,
            Code.LoadBalancerCut,
        ),
        CheckVerdict.CANNOT_TELL: (Code.PathUnclear,),
    },
    "certificate": {
        CheckVerdict.PASS: (Code.CertificateValid,),
        CheckVerdict.WARNING: (Code.CertificateExpired, Code.CertificateForeign, Code.CertificateWrongName),
        CheckVerdict.CANNOT_TELL: (Code.CertificateUnknown,),
    },
    "node": {
        CheckVerdict.CANNOT_TELL: (Code.NotThisNode,),
    },
    "kube-proxy": {
        CheckVerdict.PASS: (Code.KubeProxyFound,),
        CheckVerdict.CANNOT_TELL: (Code.KubeProxyAbsent, Code.KubeProxyUnreadable),
    },
    "cni": {
        CheckVerdict.PASS: (Code.NoSocketBalancer, Code.SocketBalancerByHosts),
        CheckVerdict.AFFECTED: (Code.SocketBalancer,),
    },
    "packet-filter": {
        CheckVerdict.PASS: (Code.PacketFilter,),
        CheckVerdict.AFFECTED: (Code.NoPacketFilter,),
    },
    "hosts-file": {
        CheckVerdict.PASS: (Code.HostsWritable, Code.HostsMounted),
        CheckVerdict.AFFECTED: (Code.HostsSymlink, Code.HostsImmutable, Code.HostsReadOnly),
        CheckVerdict.CANNOT_TELL: (Code.HostsUnreadable,),
    },
    "name-order": {
        CheckVerdict.PASS: (Code.FilesFirst,),
        CheckVerdict.AFFECTED: (Code.FilesNotFirst,),
        CheckVerdict.CANNOT_TELL: (Code.NameOrderUnreadable,),
    },
    "resolver": {
        CheckVerdict.PASS: (Code.ResolverPlain, Code.ResolverSystemd),
        CheckVerdict.CANNOT_TELL: (Code.ResolverUnreadable,),
    },
    "selinux": {
        CheckVerdict.PASS: (Code.SelinuxOff, Code.SelinuxPermissive, Code.SelinuxEnforcing),
    },
    "agent": {
        CheckVerdict.NOT_AFFECTED: (Code.AgentAbsent,),
        CheckVerdict.PASS: (Code.AgentInSync,),
        CheckVerdict.AFFECTED: (Code.AgentDrifted,),
        CheckVerdict.CANNOT_TELL: (Code.AgentUnreadable,),
    },
    "relay": {
        CheckVerdict.PASS: (Code.RelayAnswers,),
        CheckVerdict.AFFECTED: (Code.RelaySilent,),
    },
    "dnat": {
        CheckVerdict.PASS: (Code.DnatFirst,),
        CheckVerdict.AFFECTED: (Code.DnatOvertaken,),
        CheckVerdict.CANNOT_TELL: (Code.DnatUnreadable,),
    },
    "pods": {
        CheckVerdict.PASS: (Code.PodsByDnat, Code.PodsByCoreDns, Code.PodsLeftToCoreDns),
        CheckVerdict.WARNING: (Code.PodsNotServed,),
    },
    "hosts-lines": {
        CheckVerdict.PASS: (Code.HostsLinesClean,),
        CheckVerdict.AFFECTED: (Code.StaleHostsLine, Code.HairpinProxyLine),
    },
    "images": {
        CheckVerdict.PASS: (Code.ImagesElsewhere, Code.ImagesRemedied),
        CheckVerdict.WARNING: (Code.ImagesCut, Code.RebootTrap),
        CheckVerdict.CANNOT_TELL: (Code.ImagesUnknown,),
    },
    "name": {
        CheckVerdict.NOT_AFFECTED: (Code.NameElsewhere,),
        CheckVerdict.PASS: (Code.NameAtLoadBalancer, Code.NameAtRelay),
        CheckVerdict.AFFECTED: (Code.NameDiffers, Code.NameUnknown),
        CheckVerdict.CANNOT_TELL: (Code.NameUnclear,),
    },
    "pull": {
        CheckVerdict.PASS: (Code.PullWorks, Code.PullCredentials),
        CheckVerdict.AFFECTED: (
            Code.PullName,
            Code.PullConnect,
            Code.PullCut,
            Code.PullCertificate,
            Code.PullNotRegistry,
            Code.PullManifest,
            Code.PullLayer,
        ),
    },
}

_PLACES: Final[Mapping[Code, tuple[str, CheckVerdict]]] = {
    code: (check, verdict)
    for check, verdicts in CATALOGUE.items()
    for verdict, codes in verdicts.items()
    for code in codes
}
