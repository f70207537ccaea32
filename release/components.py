"""Lists what is in the image, as CycloneDX: Debian's packages and Python's (needs locks/release.txt)."""

import json
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

_SITE_PACKAGES = "opt/nodeagent/lib/python3*/site-packages"


def debian_packages(status: str, release: str) -> Iterator[PackageURL]:
    """Yield the installed packages of a dpkg status file. Pure.

    Args:
        status: The text of var/lib/dpkg/status.
        release: Debian's release, such as `debian-12`.
    """
    for paragraph in status.split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " "
        )
        if fields.get("Status", "").endswith(" installed"):
            about = {"arch": fields["Architecture"], "distro": release}
            yield PackageURL("deb", "debian", fields["Package"], fields["Version"], about)


def python_packages(root: Path) -> Iterator[PackageURL]:
    """Yield the packages that pip installed into the image, nodeagent among them."""
    for found in distributions(path=[str(path) for path in root.glob(_SITE_PACKAGES)]):
        yield PackageURL("pypi", None, found.name.lower().replace("_", "-"), found.version)


def bill_of_materials(root: Path, version: str) -> str:
    """Return the list of the image's packages as CycloneDX in JSON; the same for the same image.

    Args:
        root: The image's filesystem.
        version: The image's.

    Raises:
        ValueError: A kind of package is missing: not the image's filesystem.
    """
    release = dict(
        line.split("=", 1)
        for line in (root / "etc/os-release").read_text("utf-8").splitlines()
        if "=" in line
    )
    status = (root / "var/lib/dpkg/status").read_text("utf-8")
    number = release["VERSION_ID"].strip('"')
    debian = set(debian_packages(status, f"debian-{number}"))
    python = set(python_packages(root))
    if not debian or not python:
        raise ValueError(f"{root}: {len(debian)} Debian packages and {len(python)} Python packages")
    bom = Bom()
    bom.metadata.component = Component(
        type=ComponentType.CONTAINER, name="nodeagent", version=version, bom_ref="nodeagent"
    )
    for url in sorted(debian | python, key=str):
        bom.components.add(
            Component(
                type=ComponentType.LIBRARY, name=url.name, version=url.version, purl=url, bom_ref=str(url)
            )
        )
    bom.register_dependency(bom.metadata.component, bom.components)
    found = json.loads(JsonV1Dot6(bom).output_as_string())
    # Random, and of no use to anyone who compares two lists.
    del found["serialNumber"], found["metadata"]["timestamp"]
    return json.dumps(found, indent=2) + "\n"
