"""A configuration read anew takes over only when it is good and moves nothing that stands."""

from pathlib import Path

from nodeagent.agent.reloading import Reloading
from nodeagent.config.options import Config


def reload(tmp_path: Path, text: str) -> tuple[Config, str]:
    file = tmp_path / "nodeagent.yaml"
    file.write_text(text)
    outcome = Reloading(Config()).read(file)
    return outcome.config, outcome.problem


def test_other_names_may_be_allowed_while_it_runs(tmp_path: Path) -> None:
    config, problem = reload(tmp_path, "hosts: {allow: [example.test]}")
    assert problem == ""
    assert config.hosts.allow == ("example.test",)


def test_a_bad_file_leaves_the_old_configuration_in_force(tmp_path: Path) -> None:
    config, problem = reload(tmp_path, "hosts: {alow: [example.test]}")
    assert config == Config()
    assert "nodeagent.yaml:1: hosts.alow: unknown key" in problem


def test_where_things_stand_can_not_change_while_it_runs(tmp_path: Path) -> None:
    config, problem = reload(tmp_path, "relay: {runDir: /elsewhere}\nhosts: {file: /other/hosts}")
    assert config == Config()
    assert problem.startswith("relay.runDir, hosts.file can't change while the agent runs")


def test_no_file_means_the_defaults() -> None:
    assert Reloading(Config()).read(None).config == Config()
