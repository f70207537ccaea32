"""The defaults are those that the documentation gives."""

from pathlib import Path

import msgspec
import pytest

from nodeagent.config.options import Config
from nodeagent.config.reading import parse_config

_PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
DOCUMENTED = _PAGE.read_text("utf-8").split("```yaml\n", 1)[1].split("```", 1)[0]
"""The whole configuration as the page shows it, key by key, with the defaults."""


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", "# all commented out\n", "---\n", "~\n", "{}\n", "\ufeff"),
        *(f"{field.encode_name}:\n  # nothing\n" for field in msgspec.structs.fields(Config)),
        *("hosts: {allow: }", "dnat: {podCIDRs: ~}", "relay: {service: null, ipv4: }"),
    ],
)
def test_a_file_a_section_or_an_option_that_says_nothing_means_the_defaults(text: str) -> None:
    """Empty, a comment, null and an empty mapping are the same."""
    assert parse_config(text, "nodeagent.yaml") == Config()
