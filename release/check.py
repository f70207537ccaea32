"""Checks all of a release that needs no registry: versions, changelog, chart, manifests, wheel, image.

    python -m release.check VERSION DIRECTORY    # as root: it builds the image, twice
    python -m release.check VERSION --notes      # print the changelog's section

DIRECTORY gets what release/assets.py makes, and the list of the image's packages. Prints every fault, not
only the first one.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from release import assets, image

_SEMANTIC = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")
# One place per line: the file, and a pattern whose group is the version in it.
_PLACES = (
    ("nodeagent/__init__.py", r'^__version__ = "(.+)"$'),
    ("charts/nodeagent/Chart.yaml", r"^version: (.+)$"),
    ("charts/nodeagent/Chart.yaml", r"^appVersion: (.+)$"),
    ("charts/nodeagent/Chart.yaml", r"^ +image: ghcr.io/OWNER/nodeagent:(.+)$"),
    ("daemonset/base/kustomization.yaml", r"^  - name: nodeagent\n    newTag: (.+)$"),
    ("daemonset/coredns/kustomization.yaml", r"^  - name: nodeagent\n    newTag: (.+)$"),
    ("daemonset/doctor/kustomization.yaml", r"^  - name: nodeagent\n    newTag: (.+)$"),
    ("daemonset/deploy.yaml", r"^ +image: nodeagent:(.+)$"),
    ("daemonset/image/Dockerfile", r"^ARG VERSION=(.+)$"),
)


def version_faults(root: Path, version: str) -> Iterator[str]:
    """Yield the places below `root` that name another version, or none."""
    if not _SEMANTIC.fullmatch(version):
        yield f"{version!r} is not a version: write it as 1.2.3 or 1.2.3-rc.1"
    for file, pattern in _PLACES:
        found = re.findall(pattern, (root / file).read_text("utf-8"), re.MULTILINE)
        if not found:
            yield f"{file}: names no version ({pattern})"
        for other in sorted(set(found) - {version}):
            yield f"{file}: names version {other}, not {version}"


def changelog_section(text: str, version: str) -> str:
    """Return the changelog's section of a version, without its heading; empty if there is none. Pure."""
    found = re.search(
        rf"^## {re.escape(version)}( [^\n]*)?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    return found[2].strip() if found else ""


def changelog_faults(text: str, version: str) -> Iterator[str]:
    """Yield what is wrong with the changelog for a release of this version. Pure."""
    heading = re.search(rf"^## {re.escape(version)}(?: \((.*)\))?$", text, re.MULTILINE)
    if heading is None:
        yield f"CHANGELOG.md: no section `## {version} (YYYY-MM-DD)`"
    elif not re.fullmatch(r"20\d\d-\d\d-\d\d", heading[1] or ""):
        yield f"CHANGELOG.md: the section {version} has no date but {heading[1] or 'nothing'!r}"
    elif "\n- " not in f"\n{changelog_section(text, version)}":
        yield f"CHANGELOG.md: the section {version} is empty"


def manifest_faults(manifests: str, version: str) -> Iterator[str]:
    """Yield images in rendered manifests that are neither this version nor pinned by digest. Pure."""
    for found in yaml.safe_load_all(manifests):
        spec = found.get("spec", {}).get("template", {}).get("spec", {})
        for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
            image = container["image"]
            if not re.search(rf"(@sha256:[0-9a-f]{{64}}|:{re.escape(version)})$", image):
                yield f"deploy.yaml: container {container['name']} runs {image}"


def made_faults(directory: Path, version: str) -> Iterator[str]:
    """Make everything; yield what is missing, and whether the wheel differs when it is made again."""
    for old in directory.glob("*"):
        old.unlink()
    assets.main([str(directory)])
    wheel = f"nodeagent-{version}-py3-none-any.whl"
    made = {path.name for path in directory.iterdir()}
    for name in (f"nodeagent-{version}.tgz", "deploy.yaml", "nodeagent.cdx.json", "SHA256SUMS", wheel):
        if name not in made:
            yield f"{directory}/{name}: was not made; there are {', '.join(sorted(made))}"
    with TemporaryDirectory() as other:
        again = assets.make_wheel(Path(other))
        if again.name in made and again.read_bytes() != (directory / again.name).read_bytes():
            yield f"{again.name}: made twice, it differs"
    yield from manifest_faults((directory / "deploy.yaml").read_text("utf-8"), version)


def image_faults(directory: Path, version: str) -> Iterator[str]:
    """Build the image twice, and list its packages in `directory`; yield how the builds differ."""
    from release import components  # noqa: PLC0415 - only here are locks/release.txt's packages needed

    head = ["git", "-C", str(assets.ROOT), "rev-parse", "HEAD"]
    settings = {
        "VERSION": version,
        "REVISION": subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip(),
        "SOURCE_DATE_EPOCH": str(assets.time_of_commit()),
    }
    cache = assets.ROOT / ".cache"  # gigabytes, for as long as a build lasts: too much for a /tmp in memory
    cache.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=cache, prefix="release-") as work:
        once, again = Path(work) / "once", Path(work) / "again"
        try:
            for built in (once, again):
                print(f"building the image ({built.name}): this takes minutes", flush=True)
                image.build(assets.ROOT, built, settings)
        except image.BuildError as error:
            yield f"image: it could not be built: {error}"
            return
        yield from image.twice_faults(once, again)
        listed = components.bill_of_materials(once / "root", version)
    (directory / "nodeagent-image.cdx.json").write_text(listed, encoding="utf-8")
    (directory / "SHA256SUMS").write_text(assets.sums(directory), encoding="utf-8")


def main() -> int:
    """Print what is wrong; 0 if nothing is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="without a leading v")
    parser.add_argument("directory", type=Path, nargs="?", default=Path("dist"))
    parser.add_argument("--notes", action="store_true", help="print the changelog's section, check nothing")
    given = parser.parse_args()
    changelog = (assets.ROOT / "CHANGELOG.md").read_text("utf-8")
    if given.notes:
        print(changelog_section(changelog, given.version))
        return 0
    if os.geteuid() != 0:
        parser.error("the image is built for the check: run it as root")
    faults = list(version_faults(assets.ROOT, given.version))
    faults += changelog_faults(changelog, given.version)
    given.directory.mkdir(parents=True, exist_ok=True)
    faults += made_faults(given.directory, given.version)
    faults += image_faults(given.directory, given.version)
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    print(f"release {given.version}: {'ready' if not faults else f'not ready, faults: {len(faults)}'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
