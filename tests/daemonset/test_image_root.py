"""What becomes of the tests when the image can't be built."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.daemonset import image_root
from tests.daemonset.image_root import DOCKERFILE, REPOSITORY, ImageRoot
from tests.testbed.errors import WorldError

pytestmark = pytest.mark.timeout(600)  # the first test builds the image: a minute, if the machine is idle


@pytest.fixture
def checkout(image: ImageRoot, tmp_path: Path) -> Path:
    """A copy of what the image is built of, with a step that fails.

    Its base is as small as a base can be that runs the step: to import a whole Debian takes most of a build.
    """
    copy = tmp_path / "checkout"
    for name in ("daemonset/image", "locks", "nodeagent", "scripts"):
        shutil.copytree(REPOSITORY / name, copy / name)
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, copy)
    (copy / ".venv").symlink_to(REPOSITORY / ".venv")
    dockerfile = copy / DOCKERFILE.relative_to(REPOSITORY)
    text = dockerfile.read_text("utf-8")
    failing = re.sub(r"^(FROM .*)$", r"\1\nRUN echo no wheel today >&2 && false", text, flags=re.MULTILINE)
    dockerfile.write_text(failing, "utf-8")
    base = tmp_path / "base.tar"
    libraries = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    files = ["/bin/sh", *re.findall(r"/\S+", libraries)]
    subprocess.run(
        ["tar", "--create", "--dereference", "--absolute-names", "--file", base, *files], check=True
    )
    (copy / "scripts" / "minimal-debian").write_text(f"#!/bin/sh\necho '{base}'\n", "utf-8")
    return copy


def test_a_failed_build_reaches_every_process_and_is_not_tried_again(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="no wheel today"), image_root.built(tmp_path, checkout):
        pass
    assert [path.name for path in (checkout / ".cache" / "image").iterdir()] == ["lock"]
    # A second try would fail in another way now.
    (checkout / "scripts" / "build-image").chmod(0o644)
    with pytest.raises(WorldError, match="no wheel today"), image_root.built(tmp_path, checkout):
        pass
