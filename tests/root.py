"""What needs root says so here: tests that make namespaces, mounts or other users' files."""

import pytest

needs_root = pytest.mark.usefixtures("as_root")
"""For a test, or a whole module, that makes such things itself. A fixture that does requests `as_root`."""
