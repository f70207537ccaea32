"""Every check is in the text output, and docs/doctor.md has the words of others' logs."""

from pathlib import Path

from nodeagent.cli.doctor import GROUPS
from nodeagent.doctor.findings import Code

_DOCS = Path(__file__).parents[2] / "docs"


def test_every_check_is_shown_somewhere() -> None:
    assert sorted(check for checks in GROUPS.values() for check in checks) == sorted(
        {code.check for code in Code}
    )
