"""The image's filesystem without Docker: Debian's packages and the Dockerfile's own commands.

The package list, the commands and the variables are read from the last stage of daemonset/image/Dockerfile.
In place of its base stands Debian's minimal system of the same release, made by mmdebstrap, without what the
slim image leaves out.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.daemonset.dockerfile import Stage, read_stages
from tests.testbed.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = REPOSITORY / "daemonset" / "image" / "Dockerfile"

_SECONDS = 240.0
# As in the slim image: /usr is merged from the beginning, and not by usrmerge, which pulls 50 MB of perl in.
_NO_USRMERGE = r"Package: usrmerge\nPin: release *\nPin-Priority: -1\n"
_MERGED_USR = (
    "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
    f"--setup-hook=printf '{_NO_USRMERGE}' >\"$1/etc/apt/preferences\"",
    '--customize-hook=rm "$1/etc/apt/preferences"',
)
_LEFT_OUT_BY_SLIM = ("doc", "groff", "info", "linda", "lintian", "locale", "man")
_CHROOT_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
# $1 is the root, $2 the directory of wheels, $3 the command.
_RUN_STEP = """
set -eu
mkdir -p "$1/wheels"
mount --bind "$2" "$1/wheels"
mount -t proc proc "$1/proc"
exec chroot "$1" sh -c "$3"
"""


@dataclass(frozen=True)
class ImageRoot:
    """A filesystem and the variables that a container of it starts with."""

    path: Path
    environment: Mapping[str, str]

    @property
    def megabytes(self) -> float:
        """What its files take, in units of 1,000,000 bytes."""
        done = _run(["du", "--summarize", "--block-size=1", "--one-file-system", str(self.path)])
        return int(done.split()[0]) / 1_000_000


def last_stage() -> Stage:
    """Read the stage that becomes the image."""
    return read_stages(DOCKERFILE)[-1]


def build(directory: Path) -> None:
    """Build it in a directory that must not exist yet."""
    stage = last_stage()
    directory.mkdir()
    wheels, root = directory / "wheels", directory / "root"
    with ThreadPoolExecutor() as both:
        for made in (both.submit(_make_wheels, wheels), both.submit(_make_base, stage, root)):
            made.result()
    for step in stage.steps:
        _run(["unshare", "--mount", "sh", "-c", _RUN_STEP, "sh", str(root), str(wheels), step], clean=True)
    (root / "wheels").rmdir()


def at(directory: Path) -> ImageRoot:
    """Give what was built in a directory."""
    return ImageRoot(directory / "root", last_stage().environment)


def _make_wheels(directory: Path) -> None:
    """Make them as the first stage does."""
    constraints = REPOSITORY / "constraints.txt"
    _run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--constraint", str(constraints)),
            *("--wheel-dir", str(directory), str(REPOSITORY), "pip"),
        ]
    )


def _make_base(stage: Stage, root: Path) -> None:
    """Make the base and install the stage's packages."""
    suite = stage.base.partition(":")[2].partition("-")[0]
    _run(
        [
            *("mmdebstrap", "--quiet", "--variant=minbase", *_MERGED_USR),
            f"--include={','.join(stage.packages)}",
            *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT_BY_SLIM),
            *(suite, str(root)),
        ]
    )


def _run(command: Sequence[str], *, clean: bool = False) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
        env=_CHROOT_ENVIRONMENT if clean else None,
    )
    if done.returncode != 0:
        raise WorldError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
