"""docs/doctor-codes.md explains every check and every code, with its verdict, and none that there is not."""

import re
from pathlib import Path

from nodeagent.cli.doctor import GROUPS
from nodeagent.doctor.findings import Code

_DOCS = Path(__file__).parents[2] / "docs"
_TEXT = (_DOCS / "doctor-codes.md").read_text(encoding="utf-8")
_CHECKS = {code.check for code in Code}
_ROW = re.compile(r"^\| `(\w+)` \| ([a-z-]+) \| (.+) \|$", re.MULTILINE)


def test_every_check_and_code_is_explained_with_its_verdict() -> None:
    explained = {}
    for section in _TEXT.split("\n### ")[1:]:
        check, _, body = section.partition("\n")
        explained[check] = {(code, verdict) for code, verdict, _ in _ROW.findall(body)}
    assert explained == {
        check: {(code.value, code.verdict.value) for code in Code if code.check == check} for check in _CHECKS
    }


def test_every_check_is_shown_somewhere() -> None:
    assert sorted(check for checks in GROUPS.values() for check in checks) == sorted(_CHECKS)


def test_who_finds_it_in_a_log_lands_there() -> None:
    for words in (
        "broken header",
        "while reading PROXY protocol",
        "(52) Empty reply from server",
        "SSL_ERROR_SYSCALL",
        "connection reset by peer",
    ):
        assert words in (_DOCS / "doctor.md").read_text(encoding="utf-8")
