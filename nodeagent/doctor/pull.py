"""The rehearsal of an image pull: where it breaks, and why. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from nodeagent.doctor.certificates import certificate_finding
from nodeagent.doctor.codes import Code
from nodeagent.doctor.finding import Finding
from nodeagent.doctor.signatures import Signature, signature
from nodeagent.sources.probes.image_pull import Stage, Step

_CODES = {
    Stage.NAME: Code.PullName,
    Stage.CONNECT: Code.PullConnect,
    Stage.TLS: Code.PullCertificate,
    Stage.REGISTRY: Code.PullNotRegistry,
    Stage.CREDENTIALS: Code.PullCredentials,
    Stage.MANIFEST: Code.PullManifest,
    Stage.LAYER: Code.PullLayer,
}
_REMEDIES: Final[Mapping[Code, tuple[str, ...]]] = {
    Code.PullName: ("give the registry's name an address record that this node's resolver sees",),
    Code.PullConnect: ("see the connections from this node: nobody takes them at that address",),
    Code.PullCut: ("cut before TLS for want of the PROXY line: see the remedies of the load balancer",),
    Code.PullNotRegistry: ("does the Ingress lead /v2/ to the registry?",),
    Code.PullManifest: ("check the image's name and tag, and the platforms it is built for",),
    Code.PullLayer: ("look at the ingress controller's limits of body size and time",),
}


def pull_finding(image: str, steps: Sequence[Step], own_settings: str) -> Finding:
    """One finding for the whole rehearsal.

    Args:
        image: its name.
        steps: as rehearsed; the failed one is the last.
        own_settings: the container runtime's own file for this registry, which the rehearsal does not
            follow; empty where there is none.
    """
    evidence = [f"{step.stage.value}: {step.seen}" for step in steps]
    if own_settings:
        evidence.append(f"{own_settings} sets mirrors or CAs of the runtime's own: not followed here")
    last = steps[-1]
    code = _code(last)
    if code is Code.PullWorks:
        return Finding(code, image, "a pull works from here", tuple(evidence))
    remedy = _REMEDIES.get(code, ())
    if code is Code.PullCertificate and last.certificate is not None:
        remedy = certificate_finding("", "", last.certificate).remedy
    if code is Code.PullCredentials:
        seen = f"works as far as it goes without credentials: {last.seen}"
    else:
        seen = f"breaks at: {last.stage.value}: {last.seen}"
    return Finding(code, image, seen, tuple(evidence), remedy)


def _code(last: Step) -> Code:
    if last.ok:
        return Code.PullWorks
    if last.outcome is not None and signature(last.outcome) is Signature.CUT:
        return Code.PullCut
    return _CODES[last.stage]
