"""The plan for each golden cluster is the one that was written down and reviewed."""

from pathlib import Path

import pytest

from tests.plan.golden import clusters, expected, planned, readable


@pytest.mark.parametrize("cluster", clusters(), ids=lambda path: path.name)
def test_the_plan_is_the_expected_one(cluster: Path) -> None:
    """Every decision with its reason, and the desired state."""
    assert readable(planned(cluster)) == expected(cluster)
