"""How often a pass is made: at once, but no more than one a second if something changes all the time."""

_BURST = 10
_SECONDS = 1.0


class Pace:
    """Ten passes may follow each other at once; one more may each second."""

    def __init__(self) -> None:
        self._owed = 0.0

    def next_at(self) -> float:
        """Return from when on a pass may begin (monotonic seconds)."""
        return self._owed - _BURST * _SECONDS

    def began(self, now: float) -> None:
        """Note that a pass began."""
        self._owed = max(self._owed, now) + _SECONDS
