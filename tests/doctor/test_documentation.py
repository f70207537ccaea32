"""Every check is in the text output, and docs/doctor.md has the words of others' logs."""

from pathlib import Path

from nodeagent.cli.doctor import GROUPS
from nodeagent.doctor.findings import Code

_DOCS = Path(__file__).parents[2] / "docs"


def test_every_check_is_shown_somewhere() -> None:
    assert sorted(check for checks in GROUPS.values() for check in checks) == sorted(
        {code.check for code in Code}
    )


def test_who_finds_it_in_a_log_lands_there() -> None:
    for words in (
        "broken header",
        "while reading PROXY protocol",
        "(52) Empty reply from server",
        "SSL_ERROR_SYSCALL",
        "connection reset by peer",
    ):
        assert words in (_DOCS / "doctor.md").read_text(encoding="utf-8")
