"""Fixtures: the image, as the tests of the DaemonSet have it built."""

from __future__ import annotations

from tests.daemonset.conftest import image

__all__ = ["image"]
