import json
import subprocess
from pathlib import Path

import pytest

from release import image
from tests.cases import cases_of


def _root(root: Path) -> Path:
    (root / "etc").mkdir(parents=True)
    (root / "etc/os-release").write_text("NAME=Debian\n", "utf-8")
    (root / "etc/hosts").symlink_to("os-release")
    return root


def test_two_builds_that_are_alike(tmp_path: Path) -> None:
    found = image.described(_root(tmp_path / "once"))
    assert found.keys() == {"/etc", "/etc/hosts", "/etc/os-release"}
    assert list(image.differences(found, image.described(_root(tmp_path / "again")))) == []


@pytest.mark.parametrize(("change", "path"), cases_of(__file__, "cases.yaml")["differences"])
def test_what_differs_is_named(change: str, path: str, tmp_path: Path) -> None:
    once, again = _root(tmp_path / "once"), _root(tmp_path / "again")
    subprocess.run(["sh", "-c", change], cwd=again, check=True)
    (fault,) = image.differences(image.described(once), image.described(again))
    assert fault.startswith(f"image: built twice, {path} differs: ")


def test_many_differences_are_counted() -> None:
    faults = list(image.differences({f"/{number}": "" for number in range(100)}, {}))
    assert len(faults) == 21
    assert faults[-1] == "image: built twice, 80 more paths differ"


@pytest.mark.parametrize("part", ["config", "rootfs"])
def test_configuration_and_layers_are_compared(part: str, tmp_path: Path) -> None:
    for name in ("once", "again"):
        _root(tmp_path / name / "root")
        (tmp_path / name / "image.json").write_text('{"OCIv1": {"config": {}, "rootfs": {}}}')
    assert list(image.twice_faults(tmp_path / "once", tmp_path / "again")) == []
    said = {"config": {}, "rootfs": {}, part: {"is": "another"}}
    (tmp_path / "again" / "image.json").write_text(json.dumps({"OCIv1": said}))
    (fault,) = image.twice_faults(tmp_path / "once", tmp_path / "again")
    assert fault.startswith(f"image: built twice, its {part} differs: ")
