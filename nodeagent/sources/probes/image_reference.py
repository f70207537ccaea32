"""Pure: an image's name as a container runtime reads it (distribution/reference, containerd's reference)."""

import re
from dataclasses import dataclass

_PATH = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HTTPS = 443


@dataclass(frozen=True, slots=True)
class ImageReference:
    """Where an image is: a registry's host and port, a repository, a tag or digest."""

    host: str
    port: int
    repository: str
    reference: str

    @property
    def authority(self) -> str:
        """Host, and the port where it is not HTTPS's own."""
        return self.host if self.port == _HTTPS else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        separator = "@" if ":" in self.reference else ":"
        return f"{self.authority}/{self.repository}{separator}{self.reference}"

    @classmethod
    def parse(cls, text: str) -> "ImageReference":
        """Reads `registry.example.com/image:tag`; without a registry, Docker Hub's. Raises ValueError."""
        first, slash, rest = text.partition("/")
        named = bool(slash) and ("." in first or ":" in first or first == "localhost")
        authority, path = (first, rest) if named else ("registry-1.docker.io", text)
        path, _, digest = path.partition("@")
        path, _, tag = path.partition(":")
        if not named or authority == "docker.io":
            authority = "registry-1.docker.io"
            path = path if "/" in path else f"library/{path}"
        reference = digest or tag or "latest"
        host, _, port = authority.partition(":")
        if not host or (port and not port.isdecimal()):
            raise ValueError(f"{text!r}: {authority!r} is no registry")
        if not _PATH.fullmatch(path):
            raise ValueError(f"{text!r}: {path!r} is no repository's name")
        if not (_DIGEST if digest else _TAG).fullmatch(reference):
            raise ValueError(f"{text!r}: {reference!r} is no tag or digest")
        return cls(host, int(port or _HTTPS), path, reference)
