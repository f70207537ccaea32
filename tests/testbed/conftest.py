"""Fixtures of the testbed's own tests."""

from tests.testbed.fixtures import world

__all__ = ["world"]
