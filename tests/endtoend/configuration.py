"""Changes to the configuration that a test's nodeagent reads."""

from collections.abc import Mapping

import yaml

from tests.testbed.agent import Agent


def configure(agent: Agent, **sections: Mapping[str, object]) -> None:
    """Set options, by section; the others stay as they are."""
    document = yaml.safe_load(agent.config.read_text(encoding="utf-8"))
    for name, options in sections.items():
        document.setdefault(name, {}).update(options)
    agent.config.write_text(yaml.safe_dump(document), encoding="utf-8")
