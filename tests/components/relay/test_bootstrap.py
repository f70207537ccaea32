"""What the DaemonSet's init container makes is what a HAProxy sidecar can start from."""

import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.components.relay import Relay
from nodeagent.components.relay.bootstrap import prepare
from nodeagent.components.relay.run_directory import RunDirectory
from nodeagent.config.option_types import AbsolutePath
from nodeagent.config.options import RelayOptions
from tests.components.relay.condition import eventually
from tests.components.relay.namespace import RELAY, apply, isolated, listener

_DIRECTORY = Path("/run/nodeagent-relay")
_PROGRAM = [sys.executable, "-m", "nodeagent.components.relay.bootstrap"]


def test_a_directory_that_was_everybodys_is_made_this_users_alone(tmp_path: Path) -> None:
    """An emptyDir has mode 0777; the relay refuses to write where others could."""
    tmp_path.chmod(0o777)
    prepare(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "haproxy.cfg").stat().st_mode & 0o777 == 0o600


def test_an_earlier_configuration_is_replaced(tmp_path: Path) -> None:
    """After a reboot its addresses no longer exist, and HAProxy would not start."""
    prepare(tmp_path)
    fresh = (tmp_path / "haproxy.cfg").read_text()
    (tmp_path / "haproxy.cfg").write_text(f"{fresh}\nlisten old\n    bind 169.254.66.9:80\n")
    prepare(tmp_path)
    assert (tmp_path / "haproxy.cfg").read_text() == fresh


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
    prepare(_DIRECTORY)
    config, master = _DIRECTORY / "haproxy.cfg", _DIRECTORY / "master.sock"
    command = ["haproxy", "-W", "-db", "-S", f"{master},mode,600", "-f", str(config)]
    sidecar = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    options = RelayOptions(run_dir=AbsolutePath("/run/nodeagent"), haproxy_dir=AbsolutePath(_DIRECTORY))
    relays = Relay(options)
    assert eventually(lambda: relays.read().current)
    wanted = [listener(RELAY)]
    apply(relays, wanted)
    assert relays.ready(wanted)
    assert not Path("/run/nodeagent/haproxy.cfg").exists()
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
