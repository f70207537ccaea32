"""The supervisor without a container: what becomes of its program, and of signals."""

import os
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGHUP, SIGKILL, SIGTERM, Signals

import pytest

from tests.testbed.processes import children
from tests.testbed.waiting import wait_until


def _supervising(program: str) -> list[str]:
    return [sys.executable, "-m", "nodeagent.supervisor", "sh", "-c", program]


@pytest.mark.parametrize(("number", "code"), [(SIGTERM, 7), (SIGHUP, 8)])
def test_a_signal_is_passed_on(number: Signals, code: int, tmp_path: Path) -> None:
    """SIGTERM is blocked until the program is ready for it."""
    trapped = tmp_path / "trapped"
    text = (
        "import os, pathlib, signal, sys\n"
        "for number, code in ((signal.SIGTERM, 7), (signal.SIGHUP, 8)):\n"
        "    signal.signal(number, lambda *_, code=code: os._exit(code))\n"
        "assert signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}) == {signal.SIGTERM}\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
        "while True: signal.pause()"
    )
    program = [sys.executable, "-c", text, str(trapped)]
    supervisor = subprocess.Popen([sys.executable, "-m", "nodeagent.supervisor", *program])
    wait_until(trapped.exists, "the program running")
    supervisor.send_signal(number)
    assert supervisor.wait(timeout=20) == code


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_program_that_is_killed_is_started_again_with_nothing_of_it_left(
    log_format: str, tmp_path: Path
) -> None:
    """The second time, it ends by itself."""
    first, child = tmp_path / "first", tmp_path / "child"
    program = f"[ ! -e {first} ] || exit 5; sleep 60 & echo $! >{child}; : >{first}; kill -KILL $$"
    done = subprocess.run(
        _supervising(program),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env={**os.environ, "NODEAGENT_LOG_FORMAT": log_format},
    )
    assert done.returncode == 5
    assert done.stderr.count("sh was killed (exit code 137): starting it again") == 1
    assert done.stderr.startswith('{"time": "' if log_format == "json" else "2")
    left = tmp_path.joinpath("child").read_text("ascii").strip()
    assert subprocess.run(["kill", "-0", left], capture_output=True, check=False).returncode != 0


def test_what_dies_again_and_again_is_left_to_the_kubelet() -> None:
    code = "import nodeagent.supervisor as s, sys; s._SHORT_SECONDS = 0.0; sys.exit(s.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "sh", "-c", "kill -KILL $$"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 128 + SIGKILL
    assert done.stderr.count("starting it again") == 10


@pytest.mark.parametrize(("signs", "start_seconds"), [(0, 2), (1, 60)])
def test_silence_counts_from_the_first_sign_of_life_on(signs: int, start_seconds: int) -> None:
    """One that never answered has its time to start; one that did is killed after three looks."""
    code = (
        "import nodeagent.supervisor as s, sys; signs, s._START_SECONDS = map(int, sys.argv[1:])\n"
        "s._TICK_SECONDS = s._START_TICK_SECONDS = 0.1; s._MOST_DEATHS = 0; left = [True] * signs\n"
        "sys.exit(s.Supervisor(['sleep', '90'], answers=lambda: bool(left and left.pop())).run())"
    )
    began = time.monotonic()
    command = [sys.executable, "-c", code, str(signs), str(start_seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 128 + SIGKILL
    assert done.stderr.count("sleep does not answer: killing it") == 1
    assert signs or time.monotonic() - began >= start_seconds


def test_the_waker_goes_with_its_supervisor() -> None:
    supervisor = subprocess.Popen(_supervising("exec sleep 60"))
    wait_until(lambda: len(children(supervisor.pid)) == 2, "waker and program")
    both = children(supervisor.pid)
    supervisor.kill()
    supervisor.wait()
    subprocess.run(["kill", "-KILL", str(both[1])], check=True)
    gone = ["kill", "-0", str(both[0])]
    wait_until(lambda: subprocess.run(gone, capture_output=True, check=False).returncode != 0, "its end")
