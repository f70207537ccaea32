"""Which tests need root, and which are campaigns, is known by the fixtures they use: docs/testing.md."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

_SIMULATED_API = Path(__file__).parent / "apiserver"
_MARKED_BY_FIXTURE = {"as_root": "root", "soak": "soak"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--soak`."""
    parser.addoption("--soak", action="store_true", help="run campaigns at full length (make test-soak)")


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples Hypothesis tries of each property."""
    # The same examples each time: a gate that fails by chance is not believed. New ones are for --soak.
    settings.register_profile("short", max_examples=20, deadline=None, derandomize=True)
    settings.register_profile("soak", max_examples=1000, deadline=None)
    settings.load_profile("soak" if config.getoption("--soak") else "short")
    # The thousands of tests and their modules are no garbage, but a collector looks at them again and again.
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests before `-m` selects some of them."""
    for item in items:
        used = getattr(item, "fixturenames", ())
        if item.path.parent == _SIMULATED_API:
            item.add_marker("apiserver")
        for fixture, marker in _MARKED_BY_FIXTURE.items():
            if fixture in used:
                item.add_marker(marker)


def pytest_collection_finish() -> None:
    """Collect garbage again, but spare what was made so far."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def as_root() -> None:
    """Requested by all that makes namespaces, mounts or other users' files; skips for other users."""
    if os.geteuid() != 0:
        pytest.skip("makes namespaces, mounts or other users' files: run it as root")


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> bool:
    """Whether a campaign (random operations, kills) is to run at full length, and not in its short form."""
    chosen: bool = request.config.getoption("--soak")
    return chosen


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
