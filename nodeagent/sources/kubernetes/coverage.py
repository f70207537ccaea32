"""What an API server gives of what is asked of it."""

from enum import StrEnum


class Coverage(StrEnum):
    """What the API server gives of a resource."""

    WATCHED = "watched"
    PENDING = "pending"
    """It should come: it is asked for, or the server fails."""
    REFUSED = "refused"
    """RBAC does not allow it; what was known before stays."""
    NOT_SERVED = "not-served"
    """This server has no such thing."""
