"""Builds the image, and compares two builds of it.

Needs root, buildah and mmdebstrap (packages/tests.txt), as `scripts/build-image` does.
"""

import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_SHOWN = 20


class BuildError(Exception):
    """The image could not be built; the text is the builder's last words."""


def build(root: Path, directory: Path, settings: Mapping[str, str]) -> None:
    """Build the image of a working tree into `directory`, which must not exist: root/, image.json, log.

    Args:
        root: The working tree.
        directory: What `scripts/build-image` fills.
        settings: VERSION, REVISION and SOURCE_DATE_EPOCH.

    Raises:
        BuildError: The build failed.
    """
    done = subprocess.run(
        [str(root / "scripts" / "build-image"), str(directory)],
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(done.stderr.strip())


def described(root: Path) -> dict[str, str]:
    """Return each path below `root` with kind, mode, owner, extended attributes, and content or target.

    The time of a file is not part of it: the layers' digests hold it.
    """
    found = {}
    for folder, folders, files in os.walk(root):
        for path in (Path(folder, name) for name in (*folders, *files)):
            about = path.lstat()
            words = [stat.filemode(about.st_mode), f"{about.st_uid}:{about.st_gid}"]
            words += [
                f"{name}={os.getxattr(path, name, follow_symlinks=False).hex()}"
                for name in sorted(os.listxattr(path, follow_symlinks=False))
            ]
            if path.is_symlink():
                words.append(str(path.readlink()))
            elif path.is_file():
                words.append(hashlib.sha256(path.read_bytes()).hexdigest())
            found[f"/{path.relative_to(root)}"] = " ".join(words)
    return found


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each path that is not the same in both, up to a number that can be read. Pure."""
    paths = sorted(path for path in {*first, *second} if first.get(path) != second.get(path))
    for path in paths[:_SHOWN]:
        once, again = first.get(path, "missing"), second.get(path, "missing")
        yield f"image: built twice, {path} differs: {once} / {again}"
    if len(paths) > _SHOWN:
        yield f"image: built twice, {len(paths) - _SHOWN} more paths differ"


def twice_faults(once: Path, again: Path) -> Iterator[str]:
    """Yield how two builds of the same sources differ: files, configuration, digests of layers."""
    yield from differences(described(once / "root"), described(again / "root"))
    first, second = _said(once), _said(again)
    for part in ("config", "rootfs"):
        if first[part] != second[part]:
            yield f"image: built twice, its {part} differs: {first[part]} / {second[part]}"


def _said(built: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((built / "image.json").read_text("utf-8"))["OCIv1"]
    return found
