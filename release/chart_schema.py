"""Writes the configuration's schema into the chart's, so that Helm checks `config:` before it sends anything.

python -m release.chart_schema
"""

import json
from pathlib import Path

from nodeagent.config.options import Config
from nodeagent.config.schema import Schema, struct_schema

CHART = Path(__file__).parents[1] / "charts" / "nodeagent"
VALUES_SCHEMA = CHART / "values.schema.json"

_OWN_TO_THE_CHART = {"relay": ("runDir", "haproxyDir", "launch"), "hosts": ("file",)}
"""Where the pod's mounts are: with other values the agent would look in directories that do not exist."""


def chart_config_schema() -> Schema:
    """Return the schema of the value `config`. Pure."""
    found = struct_schema(Config)
    for section, options in _OWN_TO_THE_CHART.items():
        for option in options:
            del found["properties"][section]["properties"][option]
    return found


def main() -> None:
    """Replace `properties.config` in the chart's schema; the rest of the file stays as it is."""
    schema = json.loads(VALUES_SCHEMA.read_text("utf-8"))
    schema["properties"]["config"] = chart_config_schema()
    VALUES_SCHEMA.write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
