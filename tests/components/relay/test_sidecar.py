"""The DaemonSet's container `relay`: what HAProxy starts from, and what asks whether it answers."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from signal import SIGHUP, SIGSTOP

import pytest

from nodeagent.components.relay.activation import RunDirectory
from nodeagent.components.sidecar import answers, prepare
from nodeagent.config.option_types import AbsolutePath
from nodeagent.config.options import RelayOptions
from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired
from tests.components.relay.namespace import (
    CONFIG,
    RELAY,
    RUN,
    SIDECAR,
    A,
    B,
    KeptRelay,
    alive,
    isolated,
    listener,
    processes,
    start_sidecar,
)
from tests.testbed.processes import children
from tests.testbed.waiting import wait_until

_DIRECTORY = Path("/run/nodeagent-relay")
_PROGRAM = [sys.executable, "-m", "nodeagent.components.sidecar"]


def test_a_directory_that_was_everybodys_is_made_this_users_alone(tmp_path: Path) -> None:
    """An emptyDir has mode 0777; the relay refuses to write where others could.

    What the agent wrote stays: the container was started again, the agent was not.
    """
    tmp_path.chmod(0o777)
    prepare(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    config = tmp_path / "haproxy.cfg"
    assert config.stat().st_mode & 0o777 == 0o600
    own = f"{config.read_text()}\nlisten own\n    bind 169.254.66.9:80\n"
    config.write_text(own)
    prepare(tmp_path)
    assert config.read_text() == own


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "usage: "),
        (["relative"], "usage: "),
        (["/a", "/b"], "usage: "),
        (["/dev/null/relay"], "/dev/null/relay can't be prepared for HAProxy"),
    ],
)
def test_what_can_not_begin_says_why(arguments: list[str], told: str) -> None:
    done = subprocess.run([*_PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(told)


@isolated
def test_haproxy_starts_from_it_and_is_steered_from_then_on() -> None:
    """And what a sidecar's directory holds is nothing of `runDir`, and the reverse."""
    assert not answers(_DIRECTORY)
    sidecar = subprocess.Popen([*_PROGRAM, _DIRECTORY], stderr=subprocess.DEVNULL)
    options = RelayOptions(run_dir=AbsolutePath("/run/nodeagent"), haproxy_dir=AbsolutePath(_DIRECTORY))
    relays = KeptRelay(options)
    wait_until(lambda: relays.read().current, "an active configuration", seconds=20)
    wanted = [listener(RELAY)]
    relays.serve(wanted)
    assert relays.ready(wanted)
    assert not Path("/run/nodeagent/haproxy.cfg").exists()
    assert answers(_DIRECTORY)
    os.kill(processes(_DIRECTORY).workers[-1], SIGSTOP)
    assert not answers(_DIRECTORY)
    assert sidecar.poll() is None


@isolated
def test_it_ends_although_haproxy_loses_the_signal_in_a_reload() -> None:
    """As when the agent, which ends at the same time, takes its listeners away."""
    code = (
        "import nodeagent.components.sidecar as s, nodeagent.supervisor as v, sys\n"
        "v._TICK_SECONDS, s._END_SECONDS = 0.2, 0.0; sys.exit(s.main(sys.argv[1:]))"
    )
    sidecar = subprocess.Popen([sys.executable, "-c", code, _DIRECTORY], stderr=subprocess.DEVNULL)
    wait_until(lambda: answers(_DIRECTORY), "answers", seconds=20)
    (master,) = (pid for pid in children(sidecar.pid) if Path(f"/proc/{pid}/comm").read_text() == "haproxy\n")
    os.kill(master, SIGHUP)
    sidecar.terminate()
    assert sidecar.wait(timeout=20) == 0


@isolated
def test_a_directory_that_is_a_mount_stays_when_all_is_removed() -> None:
    """A pod's volume can't be removed from within; that is no reason for the clean-up to stop."""
    directory = Path("/run/nodeagent")
    directory.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(directory)], check=True)
    prepare(directory)
    RunDirectory(directory).remove()
    assert list(directory.iterdir()) == []


@isolated
def test_no_listeners_and_cleanup_leave_the_sidecar_running_without_any() -> None:
    relays = KeptRelay(SIDECAR)
    sidecar = start_sidecar()
    relays.serve([A])
    relays.serve([])
    assert relays.ready([A]) == frozenset()
    assert not relays.difference([])
    relays.serve([A])
    relays.clean_up()
    relays.clean_up()
    assert relays.ready([A]) == frozenset()
    assert relays.read().listeners == ()
    assert relays.read().current
    assert sidecar.poll() is None


@isolated
def test_an_absent_sidecar_is_an_error_that_says_what_to_do() -> None:
    relays = KeptRelay(SIDECAR)
    assert not relays.difference([])
    started = time.monotonic()
    with pytest.raises(ApplyError) as caught:
        relays.serve([A])
    assert time.monotonic() - started < 5
    for words in ("no HAProxy answers at /run/nodeagent/master.sock", "relay.launch: true", str(CONFIG)):
        assert words in str(caught.value)
    assert alive("haproxy") == []
    # What was asked for is in the file, and a sidecar that starts later serves it.
    assert relays.read().listeners == (A,)
    start_sidecar()
    wait_until(lambda: not relays.difference([A]), "nothing left to do", seconds=20)


@isolated
def test_one_that_was_away_only_when_its_state_was_read_is_not_reloaded() -> None:
    """As after a restart by its supervisor, which takes a tenth of a second."""
    relays = KeptRelay(SIDECAR)
    start_sidecar()
    relays.serve([A])
    before = processes()
    away = replace(relays.read(), running=False, active_digest=None)
    diff = relays.diff(away, Desired(listeners=(A,)))
    assert str(diff) == "reload HAProxy: no HAProxy answers"
    assert relays.apply(diff) == ""
    assert processes() == before


@isolated
def test_cleanup_without_a_sidecar_removes_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeagent.components.relay.activation._SIDECAR_SECONDS", 0.1)
    relays = KeptRelay(SIDECAR)
    with pytest.raises(ApplyError):
        relays.serve([A])
    relays.clean_up()
    assert not RUN.exists()
    assert not relays.difference([])


@isolated
def test_a_sidecar_is_steered_without_a_haproxy_program_beside_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relays = KeptRelay(SIDECAR)
    start_sidecar()
    relays.serve([A])
    monkeypatch.setenv("PATH", "/nonexistent")
    relays.serve([A, B])
    assert relays.ready([A, B]) == {A.bind, B.bind}
