from pathlib import Path

_TAIL_LINES = 25


class WorldError(Exception):
    """Something the world is made of did not start, did not answer, or ended early."""


class NotObservedError(Exception):
    """A step did not show what it must: what was expected, what was seen, and the log that may show why."""

    def __init__(self, expected: str, seen: str, *logs: Path) -> None:
        super().__init__(f"expected: {expected}; seen: {seen}")
        self.expected = expected
        self.seen = seen
        self.logs = "".join(log_tail(log) for log in logs)


def log_tail(log: Path, most: int = _TAIL_LINES) -> str:
    """Return what a program wrote last, with a heading, for the end of an error; the log need not exist."""
    if not log.exists():
        return f"\n(no log at {log})"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"\n--- end of {log} ---", *lines[-most:]])
