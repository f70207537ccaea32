"""A configuration read anew takes over only when it is good and moves nothing that stands."""

from pathlib import Path

from nodeagent.agent.reloading import ConfigFile, Reloading
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


def test_a_file_that_is_swapped_behind_its_link_is_another(tmp_path: Path) -> None:
    """A ConfigMap's volume: the file is a link through a link that is renamed over."""
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "nodeagent.yaml").write_text("relay:\n")
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "nodeagent.yaml").symlink_to("..data/nodeagent.yaml")
    file = ConfigFile(tmp_path / "nodeagent.yaml")
    assert not file.has_changed()
    (tmp_path / "..data_tmp").symlink_to("two")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert file.has_changed()
    assert not file.has_changed()


def test_a_file_that_is_gone_for_a_moment_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "nodeagent.yaml"
    path.write_text("relay:\n")
    file = ConfigFile(path)
    path.unlink()
    assert not file.has_changed()
    path.write_text("hosts:\n  enabled: false\n")
    assert file.has_changed()


def test_without_a_file_nothing_changes() -> None:
    assert not ConfigFile(None).has_changed()
