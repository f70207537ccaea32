"""How two builds of the image are compared."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from release import image


def _root(root: Path) -> Path:
    (root / "etc").mkdir(parents=True)
    (root / "etc/os-release").write_text("NAME=Debian\n", "utf-8")
    (root / "etc/hosts").symlink_to("os-release")
    return root


def _other_content(root: Path) -> str:
    (root / "etc/os-release").write_text("NAME=another\n", "utf-8")
    return "/etc/os-release"


def _other_mode(root: Path) -> str:
    (root / "etc").chmod(0o700)
    return "/etc"


def _other_target(root: Path) -> str:
    (root / "etc/hosts").unlink()
    (root / "etc/hosts").symlink_to("/etc/os-release")
    return "/etc/hosts"


def _missing(root: Path) -> str:
    (root / "etc/os-release").unlink()
    return "/etc/os-release"


def test_two_builds_that_are_alike(tmp_path: Path) -> None:
    found = image.described(_root(tmp_path / "once"))
    assert found.keys() == {"/etc", "/etc/hosts", "/etc/os-release"}
    assert list(image.differences(found, image.described(_root(tmp_path / "again")))) == []


@pytest.mark.parametrize("change", [_other_content, _other_mode, _other_target, _missing])
def test_what_differs_is_named(change: Callable[[Path], str], tmp_path: Path) -> None:
    once, again = _root(tmp_path / "once"), _root(tmp_path / "again")
    path = change(again)
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
