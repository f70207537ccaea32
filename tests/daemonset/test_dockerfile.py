"""The Dockerfile as a text: what a linter says of it, and what is promised of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.daemonset.dockerfile import read_stages
from tests.daemonset.image_root import DOCKERFILE, REPOSITORY


def test_the_linter_finds_nothing() -> None:
    """The file lists what the linter ignores, each with its reason."""
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, "--no-color", DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_base_is_a_dated_one_and_the_same_for_both_stages() -> None:
    bases = {stage.base for stage in read_stages(DOCKERFILE)}
    assert len(bases) == 1
    assert re.fullmatch(r"debian:trixie-20\d{6}-slim", bases.pop())


def test_no_architecture_is_named_and_nothing_is_downloaded_but_packages() -> None:
    for stage in read_stages(DOCKERFILE):
        text = " ".join(instruction.value for instruction in stage.instructions)
        assert not re.search(r"amd64|arm64|x86|aarch64|TARGETARCH|https?:|curl|wget", text)
        assert stage.values("ADD") == []


def test_compilers_and_pip_stay_in_the_first_stage() -> None:
    first, last = read_stages(DOCKERFILE)
    assert {"gcc", "libc6-dev", "python3-dev"} <= set(first.packages)
    assert set(last.packages) == {"haproxy", "iptables", "nftables", "python3"}
    assert last.values("COPY") == ["--from=built --chown=0:0 /opt/nodeagent /opt/nodeagent"]


def test_every_package_is_installed_by_its_hash() -> None:
    """And nothing is fetched to build one: what builds is locked, too."""
    runs = [part for run in read_stages(DOCKERFILE)[0].values("RUN") for part in run.split(" && ")]
    fetching = [run for run in runs if re.search(r"pip .*\b(install|wheel|download)\b", run)]
    assert len(fetching) == 4
    for run in fetching:
        assert "--require-hashes" in run or "--no-index" in run or "--no-deps" in run, run
        assert "--no-build-isolation" in run or "build.txt" in run or "--no-index" in run, run


def test_what_is_copied_is_there_and_passes_the_ignore_file() -> None:
    ignored, *allowed = [
        line
        for line in (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert ignored == "*"
    for value in read_stages(DOCKERFILE)[0].values("COPY"):
        sources = [word for word in value.split()[:-1] if not word.startswith("--")]
        for source in sources:
            assert (REPOSITORY / source).exists()
            assert f"!{source.split('/')[0]}" in allowed
