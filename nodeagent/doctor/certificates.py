"""The certificate that is shown for a name, as this machine's own TLS library judges it. Pure."""

from nodeagent.doctor.codes import Code
from nodeagent.doctor.finding import Finding
from nodeagent.sources.probes.connection_tests import CertificateOutcome, Trust

_CODES = {
    Trust.VALID: Code.CertificateValid,
    Trust.EXPIRED: Code.CertificateExpired,
    Trust.FOREIGN_AUTHORITY: Code.CertificateForeign,
    Trust.WRONG_NAME: Code.CertificateWrongName,
    Trust.UNKNOWN: Code.CertificateUnknown,
}
_REMEDIES = {
    Trust.EXPIRED: (
        "renew it; cert-manager's HTTP-01 self check fails as long as a short circuit is not remedied",
        "$ kubectl get certificates,challenges -A",
    ),
    Trust.FOREIGN_AUTHORITY: (
        "let the ingress controller show a certificate of an authority that this machine trusts",
        "or add that authority to the machine's (Debian: update-ca-certificates)",
    ),
    Trust.WRONG_NAME: (
        "another name's certificate, mostly the controller's default: does the Ingress's Secret exist?",
    ),
}


def certificate_finding(name: str, where: str, seen: CertificateOutcome) -> Finding:
    """The finding for `name`, asked at `where` (a Service's path)."""
    return Finding(
        code=_CODES[seen.trust],
        subject=name,
        seen=seen.words,
        evidence=(f"shown by {where}",),
        remedy=_REMEDIES.get(seen.trust, ()),
    )
