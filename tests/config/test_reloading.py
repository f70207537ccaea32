"""A reloaded configuration becomes active only if it is valid and moves nothing that exists."""

import errno
import os
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from nodeagent.config.options import Config
from nodeagent.config.reading import AGENT, COREDNS_CONTROLLER, ConfigFile, FixedOptions
from nodeagent.errors import ConfigError

_WHOLE_SECONDS = 1_700_000_000.0
"""A time that a file can have to the nanosecond: another is rounded, and may be later than the clock."""


def later() -> float:
    """An hour from now: what was written just now has long settled."""
    return time.time() + 3600


def reload(tmp_path: Path, text: str, fixed: FixedOptions = AGENT) -> Config:
    file = tmp_path / "nodeagent.yaml"
    file.write_text(text)
    found = ConfigFile(file, Config(), fixed)
    assert found.reload(at_once=True)
    return found.config


def test_what_says_where_things_are_can_not_change_while_it_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^hosts\.file, relay\.runDir can't change while the agent runs"):
        reload(tmp_path, "relay: {runDir: /elsewhere}\nhosts: {file: /other/hosts}")
    with pytest.raises(ConfigError, match=r"^coredns\.namespace can't .* run `nodeagent coredns cleanup`"):
        reload(tmp_path, "coredns: {namespace: dns}\nhosts: {file: /other/hosts}", COREDNS_CONTROLLER)
    for fixed in (AGENT, COREDNS_CONTROLLER):  # pods would get addresses that no node has
        with pytest.raises(ConfigError, match=r"^relay\.ipv4, relay\.ipv6 can't change while"):
            reload(tmp_path, "relay: {ipv4: 169.254.67.0/24, ipv6: 'fd00:1::/112'}", fixed)


def test_a_file_that_is_swapped_behind_its_link_is_another(tmp_path: Path) -> None:
    """A ConfigMap's volume: the file is a link through a link that is renamed over."""
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "nodeagent.yaml").write_text("relay:\n")
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "nodeagent.yaml").symlink_to("..data/nodeagent.yaml")
    file = ConfigFile(tmp_path / "nodeagent.yaml", Config(), AGENT, later)
    assert not file.has_changed()
    (tmp_path / "..data_tmp").symlink_to("two")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert file.has_changed()
    assert not file.has_changed()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "nodeagent.yaml"
    path.write_text("hosts: {enabled: false}\n")
    return path


def test_a_file_that_is_gone_for_a_moment_is_no_change(path: Path) -> None:
    file = ConfigFile(path, Config(), AGENT, later)
    path.unlink()
    assert not file.has_changed()
    path.write_text("hosts: {enabled: true}\n")
    assert file.has_changed()


def test_a_file_that_is_still_written_to_is_no_change_yet(path: Path) -> None:
    """A file written in place is empty first, which means the defaults."""
    now = _WHOLE_SECONDS
    file = ConfigFile(path, Config(), AGENT, lambda: now)
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
    path.write_text("")
    os.utime(path, (now, now))
    assert file.has_changed(at_once=True)
    now += 5
    assert not file.has_changed(), "it is not read a second time"


def test_without_a_file_the_defaults_stay() -> None:
    found = ConfigFile(None, Config(), AGENT)
    assert not found.has_changed()
    assert found.reload(at_once=True)
    assert found.config == Config()


def test_a_file_that_can_not_be_read_for_a_moment_is_read_the_next_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ConfigFile(path, Config(), AGENT, clock=later)
    path.write_text("hosts: {allow: [example.test]}")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        with pytest.raises(ConfigError, match="can't be read: Too many open files"):
            found.reload()
        assert not found.reload(), "the agent looks every second: one line of its log is enough"
        with pytest.raises(ConfigError):
            found.reload(at_once=True)
    assert found.reload()
    assert found.config.hosts.allow == ("example.test",)
    assert not found.reload()
