"""The image's filesystem, as a builder makes it of the Dockerfile: again when its sources change."""

import fcntl
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.testbed.errors import WorldError

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = REPOSITORY / "daemonset" / "image" / "Dockerfile"

_SCRIPTS = ("build-image", "minimal-debian")
_SECONDS = 540


@dataclass(frozen=True)
class ImageRoot:
    """An image: its filesystem, not to be written to, and its OCI configuration."""

    path: Path
    config: Mapping[str, Any]

    @property
    def environment(self) -> Mapping[str, str]:
        return dict(variable.split("=", 1) for variable in self.config["Env"])

    @property
    def megabytes(self) -> float:
        du = ["du", "--summarize", "--block-size=1", "--one-file-system", str(self.path)]
        return int(subprocess.run(du, capture_output=True, text=True, check=True).stdout.split()[0]) / 1e6


@contextmanager
def built() -> Iterator[ImageRoot]:
    """Build the image, unless it was built of the same sources already; of several processes, one does."""
    cache = REPOSITORY / ".cache" / "image"
    cache.mkdir(parents=True, exist_ok=True)
    directory = cache / _digest_of_sources()
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            _remove_unused(cache)
            _build(directory)
        in_use = (directory / "in-use").open("w")
        fcntl.flock(in_use, fcntl.LOCK_SH)
    with in_use:
        image = json.loads((directory / "image.json").read_text("utf-8"))
        yield ImageRoot(directory / "root", image["OCIv1"]["config"])


def _build(directory: Path) -> None:
    done = subprocess.run(
        ["timeout", f"{_SECONDS}", REPOSITORY / "scripts" / "build-image", directory],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise WorldError(
            f"build-image ended with exit code {done.returncode}; 124: after {_SECONDS} s\n{done.stderr}"
        )


def _digest_of_sources() -> str:
    """Return a digest of all that the image is built of; Debian's packages count as new every day."""
    digest = sha256(datetime.now(UTC).date().isoformat().encode())
    ignored = DOCKERFILE.with_name("Dockerfile.dockerignore")
    allowed = (line.removeprefix("!") for line in ignored.read_text("utf-8").splitlines() if line[:1] == "!")
    sources = [DOCKERFILE, ignored, *(REPOSITORY / name for name in allowed)]
    sources += [REPOSITORY / "scripts" / name for name in _SCRIPTS]
    for source in sources:
        files = [source] if source.is_file() else sorted(source.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(
                    f"{file.relative_to(REPOSITORY)}\0".encode() + sha256(file.read_bytes()).digest()
                )
    return digest.hexdigest()[:16]


def _remove_unused(cache: Path) -> None:
    """Remove the images that no process uses, and what killed builds left, which may go on removing it."""
    for old in filter(Path.is_dir, cache.iterdir()):
        with suppress(FileNotFoundError, BlockingIOError), (old / "in-use").open("w") as in_use:
            fcntl.flock(in_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old, ignore_errors=True)
