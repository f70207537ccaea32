import pytest

from tests.components.relay.namespace import KeptRelay


@pytest.fixture
def relays() -> KeptRelay:
    """It has not begun: the test's own namespace is the one in which it does."""
    return KeptRelay()
