"""Fixtures of the testbed's own tests."""

from __future__ import annotations

from tests.testbed.fixtures import world

__all__ = ["world"]
