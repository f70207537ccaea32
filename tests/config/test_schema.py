import json
from pathlib import Path

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator

from nodeagent.config.options import Config
from nodeagent.config.reading import parse_config
from nodeagent.errors import ConfigError
from release.schemas import CONFIG_SCHEMA_VERSION, config_schema
from tests.config.test_errors import TEXTS

_ROOT = Path(__file__).parents[2]
_FILE = _ROOT / "docs" / "schema" / f"config-v{CONFIG_SCHEMA_VERSION}.json"
_VALIDATOR = Draft202012Validator(config_schema())
_PAGE = (_ROOT / "docs" / "configuration.md").read_text("utf-8")
DOCUMENTED = _PAGE.split("```yaml\n", 1)[1].split("```", 1)[0]
"""The whole configuration as the page shows it, key by key, with the defaults."""


def test_the_published_schema_is_the_codes_own() -> None:
    assert json.loads(_FILE.read_text("utf-8")) == config_schema(), "run `make schema`"
    Draft202012Validator.check_schema(config_schema())


@pytest.mark.parametrize("text", [DOCUMENTED, *TEXTS["accepted"]])
def test_what_reading_accepts_is_valid(text: str) -> None:
    parse_config(text, "nodeagent.yaml")
    assert list(_VALIDATOR.iter_errors(yaml.safe_load(text))) == []


@pytest.mark.parametrize("text", TEXTS["rejected"])
def test_what_it_rejects_is_what_reading_rejects(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(text, "nodeagent.yaml")
    assert list(_VALIDATOR.iter_errors(yaml.safe_load(text))) != []


def test_every_option_is_described_and_has_its_default() -> None:
    properties = config_schema()["properties"]
    for section in properties.values():
        assert section["description"]
        for name, option in section["properties"].items():
            assert option["description"], name
    assert properties["relay"]["properties"]["ipv4"]["default"] == "169.254.66.0/24"
    assert properties["hosts"]["properties"]["dnsRecheckSeconds"]["default"] == 30
    assert properties["dnat"]["properties"]["podCIDRs"]["default"] == []


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", "# all commented out\n", "---\n", "~\n", "{}\n", "\ufeff"),
        *(f"{field.encode_name}:\n  # nothing\n" for field in msgspec.structs.fields(Config)),
        *("hosts: {allow: }", "dnat: {podCIDRs: ~}", "relay: {service: null, ipv4: }"),
    ],
)
def test_a_file_a_section_or_an_option_that_says_nothing_means_the_defaults(text: str) -> None:
    assert parse_config(text, "nodeagent.yaml") == Config()
