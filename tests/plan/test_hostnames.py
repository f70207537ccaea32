import pytest

from nodeagent.model.addresses import canonical, covering, defect


@pytest.mark.parametrize(
    "name",
    ["a", "example.com", "xn--bcher-kva.example", "1.example.com", "a-b.c", "1e2.example", "x" * 63 + ".com"],
)
def test_a_dns_name_has_no_defect(name: str) -> None:
    """RFC 1123 allows a digit in front."""
    assert defect(name) is None


def test_a_name_has_at_most_253_characters() -> None:
    """RFC 1035, without the final dot."""
    longest = "x." * 126 + "x"
    assert defect(longest) is None
    assert defect(f"x{longest}") is not None


@pytest.mark.parametrize("host", ["k.example.com", "K.Example.COM", "k.example.com.", "\u212a.example.com"])
def test_one_name_has_one_form(host: str) -> None:
    """Neither case nor a final dot makes another; the Kelvin sign's lower case is k."""
    assert canonical(host) == "k.example.com"


@pytest.mark.parametrize(
    ("name", "suffix", "covered"),
    [
        ("example.com", "example.com", True),
        ("www.example.com", "example.com", True),
        ("a.b.example.com", "example.com", True),
        ("notexample.com", "example.com", False),
        ("example.com", "www.example.com", False),
        ("example.com.evil.net", "example.com", False),
        ("com", "example.com", False),
    ],
)
def test_a_suffix_covers_itself_and_what_is_below_it(name: str, suffix: str, covered: bool) -> None:  # noqa: FBT001
    assert covering(name, [suffix]) == (suffix if covered else None)
