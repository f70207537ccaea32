"""The DaemonSet's container `relay`: what HAProxy starts from, and what asks whether it answers."""

import os
import subprocess
import sys
from pathlib import Path
from signal import SIGSTOP

import pytest

from nodeagent.components.relay.run_directory import RunDirectory
from nodeagent.components.sidecar import answers, prepare
from nodeagent.config.option_types import AbsolutePath
from nodeagent.config.options import RelayOptions
from tests.components.relay.condition import eventually
from tests.components.relay.namespace import RELAY, KeptRelay, isolated, listener, processes

_DIRECTORY = Path("/run/nodeagent-relay")
_PROGRAM = [sys.executable, "-m", "nodeagent.components.sidecar"]


def test_a_directory_that_was_everybodys_is_made_this_users_alone(tmp_path: Path) -> None:
    """An emptyDir has mode 0777; the relay refuses to write where others could."""
    tmp_path.chmod(0o777)
    prepare(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "haproxy.cfg").stat().st_mode & 0o777 == 0o600


def test_the_agents_configuration_stays(tmp_path: Path) -> None:
    """The container was started again, the agent was not."""
    prepare(tmp_path)
    own = f"{(tmp_path / 'haproxy.cfg').read_text()}\nlisten own\n    bind 169.254.66.9:80\n"
    (tmp_path / "haproxy.cfg").write_text(own)
    prepare(tmp_path)
    assert (tmp_path / "haproxy.cfg").read_text() == own


@pytest.mark.parametrize("arguments", [[], ["relative"], ["/a", "/b"]])
def test_a_wrong_call_says_how_to_call_it(arguments: list[str]) -> None:
    done = subprocess.run([*_PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("usage: ")


def test_a_directory_that_can_not_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = [*_PROGRAM, str(tmp_path / "file" / "relay")]
    done = subprocess.run(told, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "can't be prepared for HAProxy" in done.stderr


@isolated
def test_haproxy_starts_from_it_and_is_steered_from_then_on() -> None:
    """And what a sidecar's directory holds is nothing of `runDir`, and the reverse."""
    assert not answers(_DIRECTORY)
    sidecar = subprocess.Popen([*_PROGRAM, _DIRECTORY], stderr=subprocess.DEVNULL)
    options = RelayOptions(run_dir=AbsolutePath("/run/nodeagent"), haproxy_dir=AbsolutePath(_DIRECTORY))
    relays = KeptRelay(options)
    assert eventually(lambda: relays.read().current)
    wanted = [listener(RELAY)]
    relays.apply(wanted)
    assert relays.ready(wanted)
    assert not Path("/run/nodeagent/haproxy.cfg").exists()
    assert answers(_DIRECTORY)
    os.kill(processes(_DIRECTORY).workers[-1], SIGSTOP)
    assert not answers(_DIRECTORY)
    assert sidecar.poll() is None


@isolated
def test_a_directory_that_is_a_mount_stays_when_all_is_removed() -> None:
    """A pod's volume can't be removed from within; that is no reason for the clean-up to stop."""
    directory = Path("/run/nodeagent")
    directory.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(directory)], check=True)
    prepare(directory)
    RunDirectory(directory).remove()
    assert list(directory.iterdir()) == []
