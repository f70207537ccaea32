"""Makes what a release publishes besides its image: chart, manifests, wheel, bill of materials, check sums.

    python -m release.assets DIRECTORY [--image REPOSITORY@sha256:...]

daemonset/base/kustomization.yaml names the image, for the chart and for the manifests. Here it is changed in
a copy: a release names the digest that its registry serves.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from nodeagent import __version__
from release.schemas import CHART
from tests.daemonset.kustomize import DAEMONSET, text

ROOT = Path(__file__).parents[1]
_NO_COMMIT = 315532800
"""Seconds of 1980-01-01, the earliest time that a ZIP file can hold: for sources outside of a repository."""
_REFERENCE = re.compile(
    r"(?P<repository>[^@\s]+?)(@(?P<digest>sha256:[0-9a-f]{64})|:(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))"
)


def pinned(kustomization: str, reference: str) -> str:
    """Return a kustomization whose image is the given reference. Pure.

    Args:
        kustomization: The text of a kustomization with one image in `images`.
        reference: `REPOSITORY:TAG` or `REPOSITORY@sha256:...`.

    Raises:
        ValueError: The reference has neither tag nor digest.
    """
    wanted = yaml.safe_load(kustomization)
    (image,) = wanted["images"]
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise ValueError(f"{reference!r}: write it as REPOSITORY@sha256:... or REPOSITORY:TAG")
    image.pop("newTag", None)
    image |= {"newName": found["repository"]}
    image |= {"digest": found["digest"]} if found["digest"] else {"newTag": found["tag"]}
    return yaml.safe_dump(wanted, sort_keys=False)


def make_chart(directory: Path, reference: str | None = None) -> Path:
    """Package the chart with this image; returns the archive.

    REPOSITORY_URL in the environment is the public home, to which alerts and Chart.yaml then link.

    Raises:
        helm_python.HelmError: the chart can't be packaged.
    """
    import helm_python as helm  # noqa: PLC0415 - 80 MB, and only here

    with TemporaryDirectory() as work:
        copy = Path(work) / CHART.name
        shutil.copytree(CHART, copy)  # with the files that the links point to
        _pin(copy / "files" / "base" / "kustomization.yaml", reference)
        described = copy / "Chart.yaml"
        about = described.read_text("utf-8")
        if reference:
            about = about.replace(f"ghcr.io/OWNER/nodeagent:{__version__}", reference)
        if home := os.environ.get("REPOSITORY_URL"):
            about = about.replace("OWNER/nodeagent", "/".join(home.split("/")[-2:]))
            about = about.replace("OWNER", home.split("/")[-2])
            values = copy / "values.yaml"
            page = f"{home}/blob/v{__version__}/docs/runbook.md"
            text = values.read_text("utf-8").replace('runbookURL: ""', f"runbookURL: {page}")
            values.write_text(text, encoding="utf-8")
        described.write_text(about, encoding="utf-8")
        return Path(helm.package(copy, destination=directory))


def make_manifests(directory: Path, reference: str | None = None) -> Path:
    """Render daemonset/ with this image into deploy.yaml."""
    with TemporaryDirectory() as work:
        copy = Path(work) / DAEMONSET.name
        shutil.copytree(DAEMONSET, copy)
        _pin(copy / "base" / "kustomization.yaml", reference)
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


def _pin(kustomization: Path, reference: str | None) -> None:
    if reference is not None:
        kustomization.write_text(pinned(kustomization.read_text("utf-8"), reference), encoding="utf-8")


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
    parser.add_argument("--image", help="the image as the registry serves it")
    given = parser.parse_args(arguments)
    directory: Path = given.directory
    directory.mkdir(parents=True, exist_ok=True)
    make_chart(directory, given.image)
    make_manifests(directory, given.image)
    make_wheel(directory)
    make_bill_of_materials(directory)
    (directory / "SHA256SUMS").write_text(sums(directory), encoding="utf-8")
    print((directory / "SHA256SUMS").read_text("utf-8"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
