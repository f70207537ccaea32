"""Marks that several modules of tests bear."""

from __future__ import annotations

import pytest

from tests.testbed.fixtures import needs_root

in_one_world = [needs_root, pytest.mark.parametrize("world", ["nftables"], indirect=True, scope="module")]
"""For tests to which the shape of kube-proxy's rules makes no difference."""
