"""The workflows call only make targets that exist, and run only actions that are pinned by commit."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((_ROOT / ".github" / "workflows").glob("*.yml"))
_TARGETS = set(re.findall(r"^([a-z-]+):.* ## ", (_ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def _steps(workflow: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(workflow.read_text("utf-8"))["jobs"].values():
        yield from job.get("steps", [])


def _text(name: str) -> str:
    return (_ROOT / ".github" / "workflows" / name).read_text("utf-8")


def _make_targets(command: str) -> list[str]:
    return re.findall(r"(?:^|&& |; |sudo )make (?:--\S+ )*([a-z-]+)", command, re.MULTILINE)


def test_every_make_target_is_one_that_make_lists() -> None:
    called = {
        target for file in WORKFLOWS for step in _steps(file) for target in _make_targets(step.get("run", ""))
    }
    assert {"lint", "test", "chart", "release-check", "release-assets"} <= called
    assert called <= _TARGETS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: str(path.name))
def test_every_action_is_pinned_by_commit_with_its_version(workflow: Path) -> None:
    used = re.findall(r"uses: (.*)", workflow.read_text("utf-8"))
    assert used
    for action in used:
        if action.startswith("./"):
            assert (_ROOT / action.partition(" ")[0]) in WORKFLOWS
        else:
            assert re.fullmatch(r"[\w.-]+(/[\w.-]+){1,2}@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_a_digest_is_asked_for_as_buildx_prints_it() -> None:
    """It prints its table instead of a template that begins with `{{.Manifest` (docker/buildx issue 1175)."""
    asked = re.findall(r"imagetools inspect .* --format '(.*)'\)$", _text("image.yml"), re.MULTILINE)
    assert asked == ['{{printf "%s" .Manifest.Digest}}'] * 2


def test_release_and_rebuild_hand_the_image_workflow_what_it_takes() -> None:
    called = yaml.safe_load(_text("image.yml"))
    trigger = called[True]["workflow_call"]  # YAML 1.1 reads `on` as true
    needed = {name for name, about in trigger["inputs"].items() if about.get("required")}
    granted = {key for job in called["jobs"].values() for key in job.get("permissions", {})}
    callers = [
        job
        for file in WORKFLOWS
        for job in yaml.safe_load(file.read_text("utf-8"))["jobs"].values()
        if job.get("uses", "").endswith("/image.yml")
    ]
    assert len(callers) == 2
    for job in callers:
        assert needed <= set(job["with"]) <= set(trigger["inputs"])
        assert granted <= set(job["permissions"])
