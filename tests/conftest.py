"""Which tests need root, and which are campaigns, is known by the fixtures they use: docs/development.md."""

import gc
import logging
import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from nodeagent.cli.main import run
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatState
from tests.apiserver import ApiServer
from tests.cli.command_line import Ask, CommandLine
from tests.isolation import missing_rights
from tests.testbed.agent import Answer

_MARKED_BY_FIXTURE = {
    "as_root": pytest.mark.root,
    "soak": pytest.mark.soak,
    # The first test that uses it builds it: a minute, if the machine is idle.
    "image": pytest.mark.timeout(900),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run campaigns at full length (make test-soak)")


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples Hypothesis tries of each property."""
    # The same examples each time, as long as the machine takes for them: a gate that fails by chance is not
    # believed. New ones are for --soak.
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("short", patient, max_examples=20, derandomize=True)
    settings.register_profile("soak", patient, max_examples=1000)
    settings.load_profile("soak" if config.getoption("--soak") else "short")
    # The thousands of tests and their modules are no garbage, but a collector looks at them again and again.
    gc.disable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Mark tests before `-m` selects some of them, and share what is selected among the workers."""
    for item in items:
        used = getattr(item, "fixturenames", ())
        for fixture, marker in _MARKED_BY_FIXTURE.items():
            if fixture in used:
                item.add_marker(marker)
    yield
    items[:] = _shared(items, getattr(config, "workerinput", {"workercount": 1})["workercount"])


def _shared(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Give each worker some of the long tests early: one that begins last keeps all others waiting.

    xdist (`--dist worksteal`) gives each worker an equal part of the list to begin with. The first worker's
    first test makes what the long ones have in common, the image, so the others have theirs a bit later.
    """
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    shared = []
    for worker in range(workers):
        part = others[worker * len(others) // workers : (worker + 1) * len(others) // workers]
        early = len(part) // 4 if worker else 0
        shared += [*part[:early], *long[worker::workers], *part[early:]]
    return shared


def pytest_collection_finish() -> None:
    """Collect garbage again, but spare what was made so far."""
    gc.freeze()
    gc.enable()


_NO_RIGHTS = "skipped for want of rights"


@pytest.fixture(scope="session")
def as_root() -> None:
    """Requested by all that makes namespaces, mounts or other users' files; skips if that is not allowed."""
    if missing_rights():
        pytest.skip(_NO_RIGHTS)


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
    """Count these apart: a line for each of them would say the same hundreds of times."""
    why = report.longrepr[-1] if isinstance(report.longrepr, tuple) else ""
    return (_NO_RIGHTS, "s", "SKIPPED") if _NO_RIGHTS in why else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once why they were skipped, and what to do."""
    if without := terminalreporter.stats.get(_NO_RIGHTS):
        terminalreporter.write_line(f"{len(without)} tests were skipped: {missing_rights()}")


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> bool:
    """Whether a campaign (random operations, kills) is to run at full length, and not in its short form."""
    chosen: bool = request.config.getoption("--soak")
    return chosen


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the machine's own cluster, proxies and settings of nodeagent out."""
    for name in [*os.environ]:
        if re.match("KUBERNETES_SERVICE_HOST|KUBECONFIG|NODEAGENT_|.*_proxy$", name, re.IGNORECASE):
            monkeypatch.delenv(name)


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What is flushed to the disk, so that it survives a power failure: a file by its path then."""
    found: list[Path] = []
    flush = os.fsync

    def noted(descriptor: int) -> None:
        found.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return found


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def without_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a node without a table of nodeagent's: an ordinary user may not read the machine's own rules."""
    monkeypatch.setattr(NftablesBackend, "read", lambda _: DnatState())


@pytest.fixture
def command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """One Service that is served and one Ingress behind it."""
    return CommandLine(tmp_path, capsys)


@pytest.fixture
def ask(api: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Call `nodeagent COMMAND ...` in this process, with a kubeconfig for the simulated API server."""

    def call(command: str, *options: str) -> Answer:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        code = run([*command.split(), "--kubeconfig", str(kubeconfig), *options])
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return call


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """Requested by tests that configure this process's log: it would lead later tests to a closed file."""
    root, own = logging.getLogger(), logging.getLogger("nodeagent")
    handlers, levels = list(root.handlers), (root.level, own.level)
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])
