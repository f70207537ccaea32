"""What the user's own lines say, and which of them hairpin-proxy left."""

from nodeagent.components.hosts.block import parse
from nodeagent.components.hosts.lines import legacy_lines, names_set
from nodeagent.model.facts import UserHostsLine
from tests.components.hosts.samples import ONE, OWN, USER, render

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
    """The C libraries skip it; musl takes the old short forms of an address."""
    assert set(_names(b"localhost a\n999.1.1.1 b\n127.1 c\nfe80::1%eth0 d\n\xff\xfe e\n")) == {"c", "d"}


def test_lines_of_hairpin_proxy_are_recognised_and_kept() -> None:
    """Unless they are to be adopted, they are the user's like all others."""
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
