"""Images of running pods whose registry stands behind a load balancer of the same cluster. Pure."""

from collections.abc import Iterable, Mapping

from nodeagent.doctor.codes import Code, Verdict
from nodeagent.doctor.finding import Finding
from nodeagent.model.running import RunningPod

_OWN_NAME = "nodeagent"
_DOCKER_HUB = "docker.io"
_WITHOUT_AGENT = frozenset({Code.IPModeProxy, Code.HostnameOnly, Code.Tolerated, Code.NotProxy})


def registry_of(image: str) -> str:
    """The registry's host and port in an image's name: its first part, if it has a dot or a colon.

    As distribution/reference decides it, which every container runtime follows.
    """
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else _DOCKER_HUB


def image_findings(pods: Iterable[RunningPod], behind: Mapping[str, Code]) -> list[Finding]:
    """Judges the registries.

    Args:
        pods: those on this node.
        behind: host names that lead to a load balancer of this cluster, each with what was found of that.
    """
    by_registry: dict[str, list[tuple[RunningPod, str]]] = {}
    for pod in pods:
        for image in pod.images:
            registry = registry_of(image)
            if registry.partition(":")[0] in behind:
                by_registry.setdefault(registry, []).append((pod, image))
    findings = [
        finding
        for registry, found in sorted(by_registry.items())
        for finding in _findings(registry, found, behind[registry.partition(":")[0]])
    ]
    return findings or [
        Finding(
            Code.ImagesElsewhere,
            "images",
            "none of this node's pods has its image behind a load balancer of this cluster",
        )
    ]


def _findings(registry: str, found: list[tuple[RunningPod, str]], code: Code) -> list[Finding]:
    images = tuple(dict.fromkeys(f"{pod.ref.path}: {image}" for pod, image in found))
    count = len({image for _, image in found})
    what = f"{count} image{'s' if count != 1 else ''} of running pods come from it"
    if code.verdict is Verdict.AFFECTED:
        remedy = ("remedy its load balancer: until then no pod starts here whose image is not on the node",)
        findings = [Finding(Code.ImagesCut, registry, f"{what}, and can't be pulled now", images, remedy)]
    else:
        findings = [Finding(Code.ImagesRemedied, registry, f"{what}, and can be pulled", images)]
    own = tuple(dict.fromkeys(image for pod, image in found if pod.app == _OWN_NAME))
    if own and code not in _WITHOUT_AGENT:
        findings.append(
            Finding(
                Code.RebootTrap,
                registry,
                "nodeagent's own image comes through the load balancer that nodeagent remedies",
                own,
                ("keep nodeagent's image in a registry outside this cluster, or load it into every node",),
            )
        )
    return findings
