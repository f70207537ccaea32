from pathlib import Path

import pytest

from tests.components.hosts.samples import hosts_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A hosts file with the user's lines."""
    return hosts_file(tmp_path)
