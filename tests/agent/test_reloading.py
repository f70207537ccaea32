"""A configuration read anew takes over only when it is good and moves nothing that stands."""

import os
import time
from pathlib import Path

from nodeagent.agent.reloading import ConfigFile, Reloading
from nodeagent.config.options import Config


def later() -> float:
    """An hour from now: what was written just now has long settled."""
    return time.time() + 3600


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
    file = ConfigFile(tmp_path / "nodeagent.yaml", later)
    assert not file.has_changed()
    (tmp_path / "..data_tmp").symlink_to("two")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert file.has_changed()
    assert not file.has_changed()


def test_a_file_that_is_gone_for_a_moment_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "nodeagent.yaml"
    path.write_text("relay:\n")
    file = ConfigFile(path, later)
    path.unlink()
    assert not file.has_changed()
    path.write_text("hosts:\n  enabled: false\n")
    assert file.has_changed()


def test_a_file_that_is_still_written_to_is_no_change_yet(tmp_path: Path) -> None:
    """A file written in place is empty first, which means the defaults."""
    path = tmp_path / "nodeagent.yaml"
    path.write_text("hosts: {enabled: false}\n")
    now = path.stat().st_mtime
    file = ConfigFile(path, lambda: now)
    path.write_text("")
    os.utime(path, (now, now))
    assert not file.has_changed()
    path.write_text("hosts: {enabled: true}\n")
    os.utime(path, (now + 0.5, now + 0.5))
    now += 1.2
    assert not file.has_changed()
    now += 0.5
    assert file.has_changed()
    assert not file.has_changed()


def test_a_file_is_read_at_once_if_somebody_asks(tmp_path: Path) -> None:
    path = tmp_path / "nodeagent.yaml"
    path.write_text("")
    now = path.stat().st_mtime
    file = ConfigFile(path, lambda: now)
    path.write_text("hosts: {enabled: true}\n")
    os.utime(path, (now, now))
    assert file.has_changed(at_once=True)
    now += 5
    assert not file.has_changed(), "it is not read a second time"


def test_without_a_file_nothing_changes() -> None:
    assert not ConfigFile(None).has_changed()
