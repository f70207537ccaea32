"""Replacing a file whole; what a hosts file needs besides is in tests/components/hosts/test_file.py."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.linux.atomic_file import drafted, remove_drafts, replace_file
from tests.root import needs_root

_ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_is_made_and_replaced_with_its_mode_whatever_the_umask(
    tmp_path: Path, flushed: list[Path], *, durable: bool, mode: int
) -> None:
    path = tmp_path / "file"
    old = os.umask(0o777)
    try:
        for content in (b"one", b"another"):
            replace_file(path, content, durable=durable, mode=mode)
            assert path.read_bytes() == content
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(old)
    assert [*tmp_path.iterdir()] == [path]
    assert [each == tmp_path for each in flushed] == ([False, True] * 2 if durable else [])


def test_a_link_is_replaced_and_its_target_is_not_written(tmp_path: Path) -> None:
    """As one made by an intruder in the relay's container, which shares the directory."""
    (tmp_path / "target").write_bytes(b"precious")
    path = tmp_path / "file"
    path.symlink_to("target")
    replace_file(path, b"new", durable=False)
    assert (tmp_path / "target").read_bytes() == b"precious"
    assert not path.is_symlink()
    assert path.read_bytes() == b"new"


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    (path / "content").touch()
    with pytest.raises(IsADirectoryError):
        replace_file(path, b"new", durable=False)
    assert [*tmp_path.rglob("*")] == [path, path / "content"]


def test_the_next_write_removes_the_drafts_of_a_crashed_one_of_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    others = [tmp_path / ".file.nodeagent-directory", tmp_path / ".other.nodeagent-0123"]
    others[0].mkdir()
    others[1].touch()
    with drafted(path, b"first", durable=False) as crashed:
        kept = crashed.with_name(f"{crashed.name}0")
        kept.hardlink_to(crashed)
    replace_file(path, b"second", durable=False)
    assert sorted(tmp_path.iterdir()) == [*others, path]
    kept.touch()
    remove_drafts(path)
    assert sorted(tmp_path.iterdir()) == [*others, path]


_REPLACE = """
import sys
from pathlib import Path
from nodeagent.linux.atomic_file import drafted

path = Path(sys.argv[1])
with drafted(path, b"new", durable=False, like=path) as draft:
    draft.rename(path)
"""


@needs_root
def test_an_attribute_of_a_security_module_that_is_not_active_is_left_behind(tmp_path: Path) -> None:
    """Only CAP_SYS_ADMIN may write one, which the agent's container lacks."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    os.setxattr(path, "security.absent", b"a label")
    os.setxattr(path, "user.note", b"kept")
    without = ["setpriv", "--bounding-set", "-sys_admin"]
    subprocess.run([*without, sys.executable, "-c", _REPLACE, str(path)], cwd=_ROOT, check=True)
    assert path.read_bytes() == b"new"
    assert os.listxattr(path) == ["user.note"]
