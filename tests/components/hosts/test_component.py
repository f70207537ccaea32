import os
import subprocess
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeagent.components.hosts.block import BEGIN
from nodeagent.components.hosts.component import Hosts
from nodeagent.components.hosts.file import Journal, store_journal
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import ByName, sort_key
from nodeagent.model.desired import Desired, HostsLine
from tests.components.converging import converge
from tests.components.hosts import samples
from tests.components.hosts.samples import ONE, USER, KeptHosts, apply, hosts_file, line, lines, make, render
from tests.isolation import isolated


def test_a_second_apply_has_nothing_to_do_and_does_nothing(path: Path) -> None:
    apply(path)
    before = path.stat()
    subject = KeptHosts(path)
    again = subject.difference(ONE)
    assert (bool(again), again.text) == (False, "")
    assert subject.apply(again) == subject.apply(again) == ""
    assert path.stat() == before


def test_a_link_is_no_error_if_no_line_is_ever_written(path: Path) -> None:
    target = path.rename(path.with_name("static-hosts"))
    path.symlink_to(target.name)
    with pytest.raises(ApplyError, match=r"hosts\.enabled: false"):
        KeptHosts(path).read()
    disabled = KeptHosts(path, enabled=False)
    assert not disabled.difference(())
    assert make(disabled, ()).notes == ()
    assert path.readlink() == Path(target.name)
    assert target.read_bytes() == USER


def test_a_block_that_is_left_is_removed_when_no_line_is_ever_written(path: Path) -> None:
    apply(path)
    make(KeptHosts(path, enabled=False), ())
    assert path.read_bytes() == USER


def test_the_change_names_what_comes_goes_and_moves(path: Path) -> None:
    apply(path, (line("169.254.66.2", "a"), line("169.254.66.2", "b"), line("169.254.66.2", "c")))
    change = KeptHosts(path).difference(
        (line("169.254.66.2", "b"), line("169.254.66.3", "c"), line("169.254.66.2", "d"))
    )
    assert (change.added, change.removed) == (2, 2)  # c moves


@pytest.mark.parametrize("name", [b"a*b", b"caf\xc3\xa9", b"x" * 254])
def test_a_line_in_the_block_that_can_not_be_written_is_replaced(path: Path, name: bytes) -> None:
    """Also while nothing is removed, so that the file is not left alone for ever."""
    apply(path)
    before = path.read_bytes()
    path.write_bytes(before.replace(b"# END", b"10.1.2.3\t" + name + b"\n# END"))
    make(KeptHosts(path), ONE)
    assert path.read_bytes() == before


def test_a_change_counts_the_lines_of_hairpin_proxy_that_it_removes(path: Path) -> None:
    apply(path)
    path.write_bytes(path.read_bytes() + b"10.43.1.9\ta.example.com # Added by hairpin-proxy\n")
    hosts = Hosts(path, samples.NETWORKS, path.parent.parent / "run", adopt=True, enabled=True)
    assert "1 line removed" in str(hosts.diff(hosts.read(), Desired(hosts=ONE)))


def test_the_diff_is_for_people(tmp_path: Path) -> None:
    """What is no UTF-8, and what would steer a terminal, is shown escaped; nothing is changed by it."""
    before = b"# \xff \x1b[31m caf\xc3\xa9\r\n127.0.0.1 localhost"
    path = hosts_file(tmp_path, before)
    assert KeptHosts(path).difference(ONE).text == (
        f"--- {path}\n+++ {path}\n@@ -1,2 +1,5 @@\n"
        " # \\xff \\x1b[31m caf\u00e9\\r\n-127.0.0.1 localhost\n\\ No newline at end of file\n"
        "+127.0.0.1 localhost\\r\n"
        "+# BEGIN nodeagent (managed block: edits between these lines are replaced)"
        " (no newline at byte 36)\\r\n"
        "+169.254.66.2\twww.example.com\\r\n+# END nodeagent\\r\n"
    )
    assert path.read_bytes() == before
    assert samples.left_beside(path) == []


def test_the_diff_of_an_absent_file_says_so(tmp_path: Path) -> None:
    path = hosts_file(tmp_path, None)
    assert KeptHosts(path).difference(ONE).text.startswith(f"--- /dev/null\n+++ {path}\n")
    apply(path)
    assert f"--- {path}\n+++ /dev/null\n" in KeptHosts(path).difference(()).text


def test_an_edit_between_change_and_apply_is_taken_up(path: Path) -> None:
    subject = KeptHosts(path)
    planned = subject.difference(ONE)
    path.write_bytes(USER + b"10.1.1.1 edited\n")
    assert subject.apply(planned) == ""
    assert path.read_bytes() == render(USER + b"10.1.1.1 edited\n", ONE)


def test_a_file_that_never_stops_changing_is_left_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some tries; the other program here writes each time we flush."""
    edits = iter(range(100))
    flush = os.fsync

    def edit_then_flush(descriptor: int) -> None:
        path.write_bytes(b"10.1.1.1 edit%d\n" % next(edits))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", edit_then_flush)
    with pytest.raises(ApplyError, match="left it unchanged"):
        apply(path)
    assert path.read_bytes() == b"10.1.1.1 edit%d\n" % (next(edits) - 1)
    assert samples.left_beside(path) == []


def test_damaged_markers_are_a_problem_that_is_reported_once(tmp_path: Path) -> None:
    path = hosts_file(tmp_path, USER + BEGIN + b"\n169.254.66.2\twww.example.com\n10.1.1.1 mine\n")
    change = KeptHosts(path).difference(ONE)
    assert [problem.line_number for problem in change.before.problems] == [5]
    apply(path)
    assert path.read_bytes() == render(USER + b"10.1.1.1 mine\n", ONE)
    assert KeptHosts(path).read().problems == ()


def test_of_many_problems_of_a_file_the_first_are_notes(tmp_path: Path) -> None:
    notes = KeptHosts(hosts_file(tmp_path, USER + BEGIN * 2 + (BEGIN + b"\n") * 1000)).read().notes
    assert (len(notes), "more notes" in notes[-1]) == (33, True)


@pytest.mark.parametrize("done", [0.0, 0.2, 0.7, 1.0])
def test_a_write_that_broke_off_is_finished(path: Path, tmp_path: Path, done: float) -> None:
    """From its journal, and the dry run already shows the file as it will be."""
    old, new = render(USER, lines(900)), render(b"10.1.1.1 moved\n" + USER, lines(700, 9))
    store_journal(tmp_path / "run", Journal(os.fsencode(path), old, new))
    written = int(len(new) * done)
    path.write_bytes(new[:written] + old[written:])
    change = KeptHosts(path).difference(lines(700, 9))
    assert any("interrupted" in problem.text for problem in change.before.problems) == (done > 0)
    apply(path, lines(700, 9))
    assert path.read_bytes() == (new if done else render(USER, lines(700, 9)))
    assert samples.left_beside(path) == []


def test_a_file_edited_after_a_write_broke_off_is_kept_as_edited(tmp_path: Path) -> None:
    """The journal is no longer of use; it is reported and dropped."""
    path = hosts_file(tmp_path, b"10.1.1.1 edited\n")
    store_journal(tmp_path / "run", Journal(os.fsencode(path), USER, render(USER, ONE)))
    state = KeptHosts(path).read()
    assert "edited since" in state.problems[0].text
    apply(path)
    assert path.read_bytes() == render(b"10.1.1.1 edited\n", ONE)
    assert samples.left_beside(path) == []


def test_a_journal_of_another_file_or_of_garbage_is_not_heeded(path: Path, tmp_path: Path) -> None:
    store_journal(tmp_path / "run", Journal(b"/elsewhere/hosts", USER, b"foreign\n"))
    assert KeptHosts(path).read().problems == ()
    for garbage in (b"", b"x" * 100):
        (tmp_path / "run" / "hosts.journal").write_bytes(garbage)
        assert KeptHosts(path).read().problems == ()
    apply(path)


@isolated
def test_glibc_finds_the_first_the_middle_and_the_last_of_ten_thousand_names(tmp_path: Path) -> None:
    """The file at its real place, seen by getent alone; with CRLF, too."""
    names = [lines(10_000)[number].name for number in (0, 5000, 9999)]
    for user in (USER, USER.replace(b"\n", b"\r\n"), b"127.0.0.1 localhost"):
        path = tmp_path / "hosts"
        path.write_bytes(render(user, lines(10_000)))
        subprocess.run(["mount", "--bind", path, "/etc/hosts"], check=True)
        for name in names:
            asked = ["getent", "-s", "files", "ahosts", name]
            answer = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
            assert answer.split()[:3] == ["169.254.66.2", "STREAM", name]
        subprocess.run(["umount", "/etc/hosts"], check=True)


_ADDRESSES = ("169.254.66.2", "169.254.66.3", "fd68:6169:7270::2")
_NAMES = [f"host{number}.example.com" for number in range(12)]

blocks = st.lists(
    st.sets(st.tuples(st.sampled_from(_ADDRESSES), st.sampled_from(_NAMES))), min_size=2, max_size=6
)


def _as_planned(pair: tuple[str, str]) -> tuple[object, ...]:
    return (pair[1], sort_key(ip_address(pair[0])))


_BOTH = {("169.254.66.2", "host1.example.com"), ("fd68:6169:7270::2", "host1.example.com")}


@given(blocks, st.integers(0, 6))
@example([_BOTH, {("169.254.66.2", "host1.example.com")}, set()], 9)
@settings(deadline=None)
def test_the_change_is_that_of_one_that_begins(wanted: list[set[tuple[str, str]]], edited: int) -> None:
    """In bytes and in lines; also after another program edited the file."""
    with TemporaryDirectory() as directory:
        path = hosts_file(Path(directory))
        warm = KeptHosts(path)
        for number, pairs in enumerate(wanted):
            if number == edited:
                path.write_bytes(USER + path.read_bytes() + b"# edited\n")
            # In the planner's order: by hostname, then by address.
            desired = Desired(hosts=tuple(line(*pair) for pair in sorted(pairs, key=_as_planned)))
            change = warm.diff(warm.read(), desired)
            fresh = KeptHosts(path)
            assert change == fresh.diff(fresh.read(), desired)
            assert make(warm, desired.hosts) == KeptHosts(path).read()
            assert not warm.diff(warm.read(), desired)


def test_few_lines_that_differ_come_and_go_in_their_place(path: Path) -> None:
    """With the bytes of a block that is written whole."""
    warm = KeptHosts(path)
    names = [f"h{number:02}" for number in range(99)]
    hosts = ByName[HostsLine]().replaced({name: [line(_ADDRESSES[0], name)] for name in names})
    assert converge(warm, Desired(hosts=hosts)) == ""
    for name in ("a", "h00", "h00a", "h50", "h98", "z"):
        for addresses in (_ADDRESSES, _ADDRESSES[1:], ()):
            before, hosts = hosts, hosts.replaced({name: [line(each, name) for each in addresses]})
            assert hosts.since(before)
            change = warm.diff(warm.read(), Desired(hosts=hosts))
            fresh = KeptHosts(path)
            assert change == fresh.diff(fresh.read(), Desired(hosts=tuple(hosts)))
            assert converge(warm, Desired(hosts=hosts)) == ""
            assert not fresh.difference(hosts)
