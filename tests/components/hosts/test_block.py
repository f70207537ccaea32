import pytest

from nodeagent.components.hosts.block import BEGIN, END, legacy_lines, names_set, parse
from nodeagent.errors import ApplyError
from nodeagent.model.facts import UserHostsLine
from tests.components.hosts.samples import ONE, OWN, USER, line, remove, render

BLOCK = BEGIN + b"\n169.254.66.2\twww.example.com\n" + END + b"\n"
OURS = b"169.254.66.2\told.example.com\n"
MUSL_LINE_BUFFER = 512


def test_the_block_is_last_with_one_name_per_line_as_planned() -> None:
    written = (
        b"169.254.66.2\ta.example.com",
        b"fd68:6169:7270::2\ta.example.com",
        b"169.254.66.3\tb.example.com",
    )
    wanted = [line(*each.decode().split()) for each in written]
    assert render(USER, wanted) == USER + b"\n".join((BEGIN, *written, END, b""))


def test_the_longest_line_fits_into_musls_buffer() -> None:
    """fgets(line, 512) takes 511 bytes, newline included; DNS allows 253 for a name (RFC 1035, 3.1)."""
    longest = line("fd68:6169:7270:ffff:ffff:ffff:ffff:ffff", "a" * 63 + ".b" * 95)
    assert len(longest.name) == 253
    written = render(b"127.0.0.1 localhost\r\n", [longest]).splitlines(keepends=True)
    longest_line = 39 + len("\t") + 253 + len("\r\n")
    assert max(map(len, written)) == longest_line < MUSL_LINE_BUFFER


@pytest.mark.parametrize(
    "name", ["", "a b", "a\nb", "a\tb", "a#b", "caf\u00e9", "*.example.com", "a" * 254, "a\n"]
)
def test_a_name_that_is_no_host_name_is_refused(name: str) -> None:
    """A name could else bring lines of its own into the file."""
    with pytest.raises(ApplyError, match="not writing the name"):
        render(USER, [line("169.254.66.2", name)])


@pytest.mark.parametrize(
    ("user", "end"),
    [
        (b"a\r\nb\r\n", b"\r\n"),
        (b"a\r\nb", b"\r\n"),
        *((user, b"\n") for user in (b"a\r\nb\n", b"a\nb\n", b"", b"a")),
    ],
)
def test_the_block_uses_crlf_where_all_of_the_users_lines_do(user: bytes, end: bytes) -> None:
    assert render(user, ONE).endswith(end + END + end)


def test_a_newline_that_the_user_took_over_is_not_taken_away() -> None:
    """The user's bytes changed since the newline was added, or moved below: it may be the user's now."""
    written = render(b"127.0.0.1 localhost", ONE)
    assert b"(no newline at byte 19)" in written
    assert remove(b"10.1.1.1 db\n" + written) == b"10.1.1.1 db\n127.0.0.1 localhost\n"
    assert remove(written + b"10.1.1.1 db\n") == b"127.0.0.1 localhost\n10.1.1.1 db\n"
    # As many bytes as before, but not those right above the block.
    assert remove(render(b"ab", ONE).removeprefix(b"ab\n") + b"cd\n") == b"cd\n"


def test_each_whole_block_is_nodeagents_even_what_a_user_wrote_there() -> None:
    parsed = parse(b"a\n" + BLOCK + b"b\n" + BEGIN + b"\nmine!\n" + END + b"\nc\n", OWN)
    assert parsed.user == b"a\nb\nc\n"
    assert parsed.problems == ()


@pytest.mark.parametrize(
    ("content", "user", "number"),
    [
        pytest.param(b"a\n" + BEGIN + b"\n" + OURS + b"b\n" + OURS, b"a\nb\n" + OURS, 2, id="BEGIN alone"),
        pytest.param(b"a\n" + BEGIN + b"\nb\n" + BLOCK + b"c\n", b"a\nb\nc\n", 2, id="BEGIN twice"),
        pytest.param(OURS + b"a\n" + OURS + END + b"\nb\n", OURS + b"a\nb\n", 4, id="END alone"),
        pytest.param(BLOCK + OURS + END + b"\n", b"", 5, id="a second END"),
        pytest.param(b"a\n" + END + b"\nb\n" + BEGIN + b"\nc\n", b"a\nb\nc\n", 2, id="END before BEGIN"),
        pytest.param(BEGIN + b"\n10.9.9.9\tdb\n", b"10.9.9.9\tdb\n", 1, id="a foreign address below BEGIN"),
        pytest.param(BEGIN + b"\n169.254.66.2 a\n", b"169.254.66.2 a\n", 1, id="no tab, so not ours"),
        pytest.param(BEGIN + b"\n169.254.66.2\ta b\n", b"169.254.66.2\ta b\n", 1, id="two names, not ours"),
        pytest.param(b"a\n" + BEGIN, b"a\n", 2, id="BEGIN as the last bytes"),
        pytest.param(b"a\n" + BEGIN + b"\n10.1.1.1 d", b"a\n10.1.1.1 d", 2, id="the user's last line"),
        pytest.param(b"a\n# BEGIN nodeagent (mana", b"a\n", 2, id="BEGIN cut off"),
        pytest.param(b"a\n" + BEGIN + b"\n" + BEGIN[:-1], b"a\n", 2, id="BEGIN twice, the last cut off"),
    ],
)
def test_a_marker_without_its_twin_takes_no_user_line_along(content: bytes, user: bytes, number: int) -> None:
    """Only lines that nodeagent itself could have written go with it, and the file is then whole again."""
    parsed = parse(content, OWN)
    assert parsed.user == user
    assert parsed.problems[0].line_number == number
    healed = render(parsed.user, ONE)
    assert parse(healed, OWN).user == user
    assert parse(healed, OWN).problems == ()


def test_a_line_that_was_cut_off_counts_among_those_that_are_replaced() -> None:
    lines = OURS.count(b"\n") + 1
    (problem,) = parse(BEGIN + b"\n" + OURS + b"169.254.6", OWN).problems
    assert f"the {lines} line(s) of nodeagent right below it are replaced" in problem.text


@pytest.mark.parametrize("content", [b"a\n" + BLOCK, b"a\n" + BEGIN + b"\n" + OURS + b"169.254.6"])
def test_zero_bytes_that_a_power_cut_left_at_the_end_go(content: bytes) -> None:
    assert parse(content + bytes(100), OWN) == parse(content, OWN)


@pytest.mark.parametrize("start", [b"#", b"# BEG", b"# BEGIN"])
def test_a_comment_that_only_starts_like_the_marker_is_the_users(start: bytes) -> None:
    parsed = parse(b"a\n" + start, OWN)
    assert (parsed.user, parsed.problems) == (b"a\n" + start, ())


def test_a_block_cut_off_at_any_byte_leaves_the_users_lines_alone() -> None:
    """As after a power cut during an in-place write."""
    wanted = [*ONE, line("fd68:6169:7270::2", "www.example.com"), line("10.96.7.7", "a.example.com")]
    whole = render(USER, wanted)
    begun = len(USER) + len(b"# BEGIN nodeagent")
    for length in range(begun, len(whole)):
        assert remove(whole[:length]) == USER, whole[len(USER) : length]


HAIRPIN = b"10.43.1.9\ta.example.com b.example.com # Added by hairpin-proxy\n"


def _names(content: bytes) -> dict[str, UserHostsLine]:
    parsed = parse(content, OWN)
    return names_set(parsed.user, parsed.line_numbers)


def test_each_name_has_its_first_line_without_the_comments() -> None:
    """Line numbers are those of the file, lines of the block do not count."""
    content = render(USER, ONE) + b"10.0.0.9\tWWW.Example.com # not#this\n#10.0.0.9 nor-this\n\n10.0.0.8 db\n"
    names = _names(content)
    assert names["localhost"] == UserHostsLine(1, "127.0.0.1")
    assert names["db"] == UserHostsLine(4, "10.1.2.3")
    assert names["www.example.com"] == UserHostsLine(8, "10.0.0.9")
    assert set(names) == {"localhost", "ip6-localhost", "db", "db.corp", "www.example.com"}


def test_a_line_without_a_valid_address_sets_nothing() -> None:
    """The C libraries skip it, as one of zero bytes after a crash; musl takes the old short forms."""
    odd = b"\xff\xfe e\n\0\0\0 f\n1\x000.0.0.1\0 g\n"
    assert set(_names(b"localhost a\n999.1.1.1 b\n127.1 c\nfe80::1%eth0 d\n" + odd)) == {"c", "d"}


def test_lines_of_hairpin_proxy_are_recognised_and_kept() -> None:
    parsed = parse(USER + HAIRPIN, OWN)
    assert legacy_lines(parsed.user, parsed.line_numbers) == {5: ("a.example.com", "b.example.com")}
    assert parsed.user == USER + HAIRPIN
    assert parse(render(parsed.user, ONE), OWN).user == USER + HAIRPIN


def test_adopting_removes_lines_of_hairpin_proxy_alone() -> None:
    """In any place, with or without names, with any line end; not a comment that only mentions it."""
    comment = b"# below: # Added by hairpin-proxy\n"
    user = HAIRPIN + comment + b"10.43.1.9\t # Added by hairpin-proxy\r\n" + USER + HAIRPIN.rstrip()
    adopted = render(parse(user, OWN).user, ONE, adopt=True)
    parsed = parse(adopted, OWN)
    assert parsed.user == comment + USER
    assert not legacy_lines(parsed.user, parsed.line_numbers)
    assert render(user, (), adopt=True) == comment + USER


def test_a_line_of_the_users_own_comes_before_one_of_hairpin_proxy() -> None:
    """Else adopting the latter would let us write a name that the user's line sets, too."""
    names = _names(HAIRPIN + b"10.1.1.1 a.example.com\n")
    assert names["a.example.com"] == UserHostsLine(2, "10.1.1.1")
    assert names["b.example.com"] == UserHostsLine(1, "10.43.1.9", by_hairpin_proxy=True)
