import json
import shutil
from pathlib import Path

import pytest

components = pytest.importorskip("release.components", reason="make test-unit installs locks/release.txt")


def _root(root: Path) -> Path:
    for folder in ("etc", "var/lib/dpkg", "opt/nodeagent/lib/python3.13/site-packages/A_b-1.0.dist-info"):
        (root / folder).mkdir(parents=True)
    (root / "etc/os-release").write_text('NAME=Debian\nVERSION_ID="12"\n', "utf-8")
    shutil.copy(Path(__file__).with_name("status.txt"), root / "var/lib/dpkg/status")
    metadata = "Metadata-Version: 2.1\nName: A_b\nVersion: 1.0\n"
    (root / "opt/nodeagent/lib/python3.13/site-packages/A_b-1.0.dist-info/METADATA").write_text(metadata)
    return root


def test_a_list_of_debians_packages_and_of_pythons(tmp_path: Path) -> None:
    text = components.bill_of_materials(_root(tmp_path), "1.2.3")
    found = json.loads(text)
    assert found["metadata"]["component"]["version"] == "1.2.3"
    assert [one["purl"] for one in found["components"]] == [
        "pkg:pypi/a-b@1.0",
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12",
    ]
    assert components.bill_of_materials(tmp_path, "1.2.3") == text


def test_a_list_without_a_kind_of_package_is_an_error(tmp_path: Path) -> None:
    root = _root(tmp_path)
    (root / "var/lib/dpkg/status").write_text("", "utf-8")
    with pytest.raises(ValueError, match="0 Debian packages and 1 Python packages"):
        components.bill_of_materials(root, "1.2.3")
