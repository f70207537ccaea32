"""The locks hold what pyproject.toml asks for, and nothing else: `make lock` was run since."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_REPOSITORY = Path(__file__).parents[2]
_PROJECT: Mapping[str, Any] = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text("utf-8"))
_EXTRAS: Mapping[str, list[str]] = _PROJECT["project"]["optional-dependencies"]
_ASKED_FOR: Mapping[str, list[str]] = {
    "agent": [*_PROJECT["project"]["dependencies"], *_EXTRAS["iptables"]],
    "build": _PROJECT["dependency-groups"]["build"],
    **{name: extra for name, extra in _EXTRAS.items() if name != "iptables"},
}
_ENTRY = re.compile(
    r"^(?P<pin>[a-z0-9-]+==[^\s;]+(?: ; [^\\\n]+?)?)(?P<hashes>(?: \\\n    --hash=sha256:[0-9a-f]{64})+)$",
    re.MULTILINE,
)


def _locked(name: str) -> dict[str, Requirement]:
    text = (_REPOSITORY / "locks" / f"{name}.txt").read_text("utf-8")
    rest = re.sub(r"^#.*\n", "", _ENTRY.sub("", text), flags=re.MULTILINE)
    assert rest.strip() == "", "every line is a version with its hashes"
    pins = [Requirement(match["pin"]) for match in _ENTRY.finditer(text)]
    # Of two for one package, the one that counts with this Python comes last.
    pins.sort(key=lambda pin: pin.marker is None or pin.marker.evaluate())
    return {pin.name: pin for pin in pins}


# scripts/lock says why.
_LEFT_OUT = {"rfc3987-syntax"}
_LOCKS = {name: _locked(name) for name in _ASKED_FOR}
_INSTALLED: Mapping[str, str] = {canonicalize_name(one.name): one.version for one in distributions()}
_ALL = {name: pin for locked in _LOCKS.values() for name, pin in locked.items()}


def _needed(asked_for: Iterable[str], extras: frozenset[str] = frozenset()) -> Iterator[Requirement]:
    """Yield the requirements that count with this Python."""
    for text in asked_for:
        requirement = Requirement(text)
        environments = [{"extra": extra} for extra in extras or {""}]
        if requirement.marker is None or any(requirement.marker.evaluate(one) for one in environments):
            yield requirement


def _closure(asked_for: Iterable[str]) -> dict[str, list[Requirement]]:
    """Follow what is asked for through what is installed; returns all that is asked of each package."""
    found: dict[str, list[Requirement]] = {}
    waiting = list(_needed(asked_for))
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if name in _LEFT_OUT:
            continue
        found.setdefault(name, []).append(requirement)
        if (name, extras) not in done:
            done.add((name, extras))
            waiting += _needed((requires(name) or []) if name in _INSTALLED else [], extras)
    return found


@pytest.mark.parametrize("name", _LOCKS)
def test_all_that_is_asked_for_is_locked_in_a_version_that_fits(name: str) -> None:
    """In its own lock or in those that are installed before it: the image has the agent's alone."""
    installed = list(_LOCKS)[: list(_LOCKS).index(name) + 1]
    for package, requirements in _closure(_ASKED_FOR[name]).items():
        assert any(package in _LOCKS[lock] for lock in installed), f"{package} is not locked: run `make lock`"
        (pinned,) = _ALL[package].specifier
        for requirement in requirements:
            fits = requirement.specifier.contains(pinned.version, prereleases=True)
            assert fits, f"{requirement} is asked for, {_ALL[package]} is locked: run `make lock`"


def test_nothing_is_locked_that_nothing_asks_for() -> None:
    """What asks for what is read from installed packages: a release installs its own alone."""
    needed = {package for asked_for in _ASKED_FOR.values() for package in _closure(asked_for)}
    for lock in _LOCKS.values():
        locked = {name for name, pin in lock.items() if pin.marker is None or pin.marker.evaluate()}
        if locked <= _INSTALLED.keys():
            assert locked - needed == set(), "run `make lock`"


def test_each_package_is_locked_once() -> None:
    assert sum(len(locked) for locked in _LOCKS.values()) == len(_ALL)


def test_what_the_tests_run_on_is_what_is_locked() -> None:
    """The environment is made of the locks alone; one that is older says nothing of them."""
    there = {f"{name}=={_INSTALLED[name]}" for name in _ALL.keys() & _INSTALLED.keys()}
    assert there <= {f"{name}{pin.specifier}" for name, pin in _ALL.items()}, "run `make venv`"


def test_what_builds_the_project_is_what_is_locked_for_it() -> None:
    assert set(_PROJECT["build-system"]["requires"]) <= set(_ASKED_FOR["build"])


def test_no_index_is_named() -> None:
    for name in _LOCKS:
        assert "://" not in (_REPOSITORY / "locks" / f"{name}.txt").read_text("utf-8")
