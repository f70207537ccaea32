"""Makes what a release publishes besides its image: chart, manifests, wheel, bill of materials, check sums.

    python -m release.assets DIRECTORY [--image REPOSITORY@sha256:...] [--relay REPOSITORY@sha256:...]

daemonset/base/kustomization.yaml names the images, for the chart and for the manifests. Here it is changed in
a copy: a release names the digests that its registry serves.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from release.chart_schema import CHART
from tests.daemonset.kustomize import DAEMONSET, text

ROOT = Path(__file__).parents[1]
_NO_COMMIT = 315532800
"""Seconds of 1980-01-01, the earliest time that a ZIP file can hold: for sources outside of a repository."""
_REFERENCE = re.compile(
    r"(?P<repository>[^@\s]+?)(@(?P<digest>sha256:[0-9a-f]{64})|:(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))"
)


def pinned(kustomization: str, references: Mapping[str, str]) -> str:
    """Return a kustomization whose images are the given references. Pure.

    Args:
        kustomization: The text of a kustomization with `images`.
        references: By the name in the manifests: `REPOSITORY:TAG` or `REPOSITORY@sha256:...`.

    Raises:
        ValueError: A reference has neither tag nor digest, or the kustomization has no such image.
    """
    wanted = yaml.safe_load(kustomization)
    by_name = {image["name"]: image for image in wanted["images"]}
    for name, reference in references.items():
        if name not in by_name:
            raise ValueError(f"the kustomization has no image {name!r}")
        found = _REFERENCE.fullmatch(reference)
        if found is None:
            raise ValueError(f"{reference!r}: write it as REPOSITORY@sha256:... or REPOSITORY:TAG")
        by_name[name].pop("newTag", None)
        by_name[name] |= {"newName": found["repository"]}
        by_name[name] |= {"digest": found["digest"]} if found["digest"] else {"newTag": found["tag"]}
    return yaml.safe_dump(wanted, sort_keys=False)


def make_chart(directory: Path, references: Mapping[str, str]) -> Path:
    """Package the chart with these images; returns the archive. Raises helm_python.HelmError."""
    import helm_python as helm  # noqa: PLC0415 - 80 MB, and only here

    with TemporaryDirectory() as work:
        copy = Path(work) / CHART.name
        shutil.copytree(CHART, copy)  # with the files that the links point to
        _pin(copy / "files" / "base" / "kustomization.yaml", references)
        return Path(helm.package(copy, destination=directory))


def make_manifests(directory: Path, references: Mapping[str, str]) -> Path:
    """Render daemonset/ with these images into deploy.yaml."""
    with TemporaryDirectory() as work:
        copy = Path(work) / DAEMONSET.name
        shutil.copytree(DAEMONSET, copy)
        _pin(copy / "base" / "kustomization.yaml", references)
        target = directory / "deploy.yaml"
        target.write_text(text(copy), encoding="utf-8")
    return target


def make_wheel(directory: Path) -> Path:
    """Build the wheel by what locks/build.txt pins; the same sources give the same bytes, on every day."""
    before = set(directory.glob("*.whl"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--wheel-dir", str(directory), str(ROOT)],
        check=True,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "SOURCE_DATE_EPOCH": str(time_of_commit())},
    )
    (made,) = set(directory.glob("*.whl")) - before
    return made


def make_bill_of_materials(directory: Path) -> Path:
    """List the packages that the agent runs on, with their hashes, as CycloneDX in JSON."""
    target = directory / "nodeagent.cdx.json"
    lister = [sys.executable, "-m", "cyclonedx_py", "requirements", "--output-reproducible"]
    about = ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"]
    locked = ["--output-file", str(target), str(ROOT / "locks" / "agent.txt")]
    subprocess.run([*lister, *about, *locked], check=True)
    return target


def time_of_commit() -> int:
    """Return the seconds of the last commit's time; those of 1980 outside of a repository."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    return int(done.stdout or _NO_COMMIT)


def _pin(kustomization: Path, references: Mapping[str, str]) -> None:
    kustomization.write_text(pinned(kustomization.read_text("utf-8"), references), encoding="utf-8")


def sums(directory: Path) -> str:
    """Return SHA256SUMS of a directory's files, as sha256sum writes them."""
    files = sorted(path for path in directory.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def main(arguments: list[str] | None = None) -> int:
    """Make everything in a directory, which may exist and must not hold a wheel."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--image", help="the agent's image as the registry serves it")
    parser.add_argument("--relay", help="HAProxy's image as the registry serves it")
    given = parser.parse_args(arguments)
    named = {"nodeagent": given.image, "haproxy": given.relay}
    references = {name: reference for name, reference in named.items() if reference}
    directory: Path = given.directory
    directory.mkdir(parents=True, exist_ok=True)
    make_chart(directory, references)
    make_manifests(directory, references)
    make_wheel(directory)
    make_bill_of_materials(directory)
    (directory / "SHA256SUMS").write_text(sums(directory), encoding="utf-8")
    print((directory / "SHA256SUMS").read_text("utf-8"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
