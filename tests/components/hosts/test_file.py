import os
import struct
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from nodeagent.components.hosts import file
from nodeagent.components.hosts.block import BEGIN
from nodeagent.errors import ApplyError
from tests.components.hosts.samples import ONE, USER, KeptHosts, apply, hosts_file, left_beside, lines, make
from tests.isolation import bind, isolated, mount
from tests.root import needs_root

ACL = "system.posix_acl_access"


def _acl(named_user_permissions: int) -> bytes:
    """Encode an ACL (linux/posix_acl_xattr.h): owner rw, user 1234 as given, group r, mask rw, others r."""
    nobody = 0xFFFFFFFF
    entries = [
        (1, 6, nobody),
        (2, named_user_permissions, 1234),
        (4, 4, nobody),
        (16, 6, nobody),
        (32, 4, nobody),
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def _needs_attributes(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"this file system keeps no {name}: {error}")


@needs_root
def test_mode_owner_and_extended_attributes_stay(path: Path) -> None:
    path.chmod(0o640)
    os.chown(path, 12, 34)
    _needs_attributes(path, "user.note", b"keep \xff me")
    _needs_attributes(path, "trusted.note", b"kept, too")
    _needs_attributes(path, ACL, _acl(6))
    before = path.stat()
    apply(path)
    after = path.stat()
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, 12, 34)
    assert os.getxattr(path, "user.note") == b"keep \xff me"
    assert os.getxattr(path, "trusted.note") == b"kept, too"
    assert os.getxattr(path, ACL) == _acl(6)


@needs_root
def test_an_acl_that_the_directory_gives_to_new_files_does_not_stick(path: Path) -> None:
    _needs_attributes(path.parent, "system.posix_acl_default", _acl(7))
    mode = path.stat().st_mode
    apply(path)
    assert ACL not in os.listxattr(path)
    assert path.stat().st_mode == mode


def test_a_reader_that_holds_the_old_file_sees_it_whole(path: Path) -> None:
    with path.open("rb") as held:
        apply(path)
        assert held.read() == USER
    assert BEGIN in path.read_bytes()


def test_an_absent_file_is_made_readable_for_all_and_removed_by_cleanup(tmp_path: Path) -> None:
    """Whatever the umask; glibc and musl both do without the file. Without names, none is made."""
    path = hosts_file(tmp_path, None)
    apply(path, ())
    assert not path.exists()
    old = os.umask(0o077)
    try:
        apply(path)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o644
    apply(path, ())
    assert not path.exists()
    assert left_beside(path) == []


def test_what_is_written_or_deleted_survives_a_power_failure(tmp_path: Path, flushed: list[Path]) -> None:
    path = hosts_file(tmp_path, None)
    apply(path)
    assert [each == path.parent for each in flushed] == [False, True]
    apply(path, ())
    assert flushed[2:] == [path.parent]


@pytest.mark.parametrize(("content", "edit"), [(None, b"10.1.1.1 db\n"), (b"", b"")])
def test_a_file_of_others_too_outlives_cleanup(tmp_path: Path, content: bytes | None, edit: bytes) -> None:
    """One to which a user wrote, or that was empty before us."""
    path = hosts_file(tmp_path, content)
    apply(path)
    path.write_bytes(edit + path.read_bytes())
    apply(path, lines(2))
    apply(path, ())
    assert path.read_bytes() == edit


@pytest.mark.parametrize(
    ("content", "edited"),
    [(None, USER), (USER, USER + b"new\n"), (USER, b""), (USER, None), (USER, USER)],
    ids=["appeared", "lines added", "cut to nothing", "deleted", "another of the same content"],
)
def test_a_file_changed_meanwhile_stays(tmp_path: Path, content: bytes | None, edited: bytes | None) -> None:
    """Another of the same content may have another mode or owner, which are to be kept."""
    path = hosts_file(tmp_path, content)
    before = file.read(path)
    if edited in (None, content):
        path.rename(tmp_path / "old")
    if edited is not None:
        path.write_bytes(edited)
    with pytest.raises(file.ChangedMeanwhileError):
        file.write_atomic(path, before, b"ours\n")
    assert (path.read_bytes() if path.exists() else None) == edited
    assert left_beside(path) == []


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc/hosts.deny", "etc/hosts", "hosts", "/"])
def test_only_an_absolute_path_to_a_file_named_hosts_is_taken(path: str) -> None:
    with pytest.raises(file.RefusedPathError, match="only writes to a file named hosts"):
        file.guard_path(Path(path))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Path.mkdir, "directory"),
        (os.mkfifo, "FIFO"),
        (lambda path: path.symlink_to("/nix/a"), r"symbolic link to /nix/a.*hosts\.enabled: false"),
    ],
    ids=["directory", "FIFO", "dangling link"],
)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, make: Callable[[Path], object], told: str) -> None:
    """Without waiting for a process to write into a FIFO; a link as on NixOS, with what to do."""
    path = hosts_file(tmp_path, None)
    make(path)
    with pytest.raises(file.RefusedPathError, match=told):
        KeptHosts(path).read()


def test_a_file_without_end_is_refused_whole(tmp_path: Path) -> None:
    path = hosts_file(tmp_path, USER)
    os.truncate(path, 6 * 1024 * 1024)
    assert len(file.read(path).content) == 6 * 1024 * 1024
    os.truncate(path, 2**40)
    with pytest.raises(file.RefusedPathError, match="has more than 6291456 bytes"):
        KeptHosts(path).read()
    assert path.stat().st_size == 2**40


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "hosts"
    with pytest.raises(ApplyError, match=r"can't replace .*No such file or directory \(ENOENT\)"):
        apply(path)


@needs_root
def test_an_immutable_file_is_left_as_it_was(path: Path) -> None:
    if subprocess.run(["chattr", "+i", path], check=False, capture_output=True).returncode != 0:
        pytest.skip("this file system knows no immutable files")
    try:
        with pytest.raises(ApplyError, match=r"EPERM.*left as it was.*chattr -i"):
            apply(path)
    finally:
        subprocess.run(["chattr", "-i", path], check=True)
    assert path.read_bytes() == USER
    assert left_beside(path) == []


@pytest.mark.parametrize("alone", [False, True], ids=["its directory", "the file"])
@isolated
def test_what_is_mounted_read_only_is_left_as_it_was(path: Path, alone: bool) -> None:
    place = path if alone else path.parent
    bind(place, place, read_only=True)
    with pytest.raises(ApplyError, match=r"EROFS.*left as it was"):
        apply(path)
    assert path.read_bytes() == USER
    assert left_beside(path) == []


@pytest.mark.parametrize("mounted", [False, True], ids=["replaced", "written in place"])
@isolated
def test_a_full_file_system_leaves_the_file_as_it_was(tmp_path: Path, mounted: bool) -> None:
    """In place, the kernel writes what fits before it says ENOSPC: that is undone."""
    path = tmp_path / "etc" / "hosts"
    path.parent.mkdir()
    mount("tmpfs", path.parent, "tmpfs", options="size=64k")
    path.write_bytes(USER)
    if mounted:
        bind(path, path)
    apply(path, lines(20))
    before = path.read_bytes()
    with pytest.raises(ApplyError, match=r"ENOSPC.*left as it was"):
        apply(path, lines(10_000, 9))
    assert path.read_bytes() == before
    assert left_beside(path) == []
    apply(path, lines(21))


@isolated
def test_a_mounted_directory_lets_the_file_be_replaced(path: Path, tmp_path: Path) -> None:
    """How the DaemonSet mounts /etc; a replacement on the host's side is then seen, too."""
    mounted = tmp_path / "host" / "etc"
    mounted.mkdir(parents=True)
    bind(path.parent, mounted)
    subject = KeptHosts(mounted / "hosts")
    assert make(subject, ONE).how == "rename"
    assert BEGIN in path.read_bytes()
    path.with_name("new").write_bytes(b"new\n")
    path.with_name("new").rename(path)
    apply(mounted / "hosts")
    assert path.read_bytes().startswith(b"new\n" + BEGIN)


@pytest.mark.parametrize("times", [1, 4, 5])
def test_a_file_replaced_while_it_is_opened_is_no_orphan(
    path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open
    left = iter(range(times))

    def open_then_lose(*args: object, **kwargs: object) -> int:
        descriptor = opened(*args, **kwargs)  # type: ignore[arg-type] # handed on as it came
        if next(left, None) is not None:
            path.with_name("new").write_bytes(b"new\n")
            path.with_name("new").rename(path)
        return descriptor

    monkeypatch.setattr(os, "open", open_then_lose)
    with pytest.raises(file.ChangedMeanwhileError) if times > 4 else nullcontext():
        assert file.read(path).content == b"new\n"
