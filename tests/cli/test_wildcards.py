"""Wildcards: no hosts file holds them, so DNAT alone covers them, or nothing does; both outputs say which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.command_line import HOST, ingress

if TYPE_CHECKING:
    from tests.cli.command_line import CommandLine

WILDCARD = "*.tenants.example.test"


@pytest.mark.parametrize("command", ["plan", "status"])
@pytest.mark.parametrize(
    ("backend", "verdict", "words"),
    [
        ("nftables", "skipped", "covered by DNAT alone: a hosts file can't hold wildcards"),
        ("none", "refused", "not covered: a hosts file can't hold wildcards, and DNAT is off"),
    ],
)
def test_a_wildcard_is_listed_with_what_covers_it(
    command_line: CommandLine, command: str, backend: str, verdict: str, words: str
) -> None:
    """In text and in JSON, next to the names that the hosts file holds."""
    command_line.write(ingress=ingress(HOST, WILDCARD))
    command_line.configure(dnat={"backend": backend})
    (line,) = [line for line in command_line(command).stdout.splitlines() if WILDCARD in line]
    assert line.split()[0] == verdict
    assert line.endswith(f"{words} [Wildcard]")
    found = {name["name"]: name for name in command_line(command, "-o", "json").document["names"]}
    assert (found[WILDCARD]["verdict"], found[WILDCARD]["code"]) == (verdict, "Wildcard")
    assert (found[WILDCARD]["reason"], found[WILDCARD]["written"]) == (words, False)
    assert found[HOST]["verdict"] == "served"
