"""Fixtures: the image's filesystem, as the tests of the DaemonSet make it."""

from __future__ import annotations

from tests.daemonset.conftest import image

__all__ = ["image"]
