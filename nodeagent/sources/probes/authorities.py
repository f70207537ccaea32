"""The certificate authorities that a node trusts, also when asked from within a container."""

import contextlib
import ssl
from pathlib import Path

_OWN = Path("/etc")
# Where distributions keep all of them in one file: Debian and Alpine, Red Hat, SUSE. Behind links that lead
# out of a mounted /etc nothing is found: so the files themselves.
_BUNDLES = (
    "ssl/certs/ca-certificates.crt",
    "pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "ssl/ca-bundle.pem",
)


def verifying_context(etc: Path = _OWN) -> ssl.SSLContext:
    """A TLS client's context that verifies chain, dates and name.

    Args:
        etc: The node's /etc. Where that is this process's own, OpenSSL's defaults hold ($SSL_CERT_FILE); a
            node whose /etc is elsewhere (a container) is asked for its bundle, and the container's own
            authorities stand in for one that has none.
    """
    if etc != _OWN:
        for name in _BUNDLES:
            # A bundle that is no bundle is passed over, like one that is absent.
            with contextlib.suppress(OSError):
                return ssl.create_default_context(cafile=str(etc / name))
    return ssl.create_default_context()
