"""A stream of lines over HTTP: each is handed on whole, and as soon as it has arrived."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Self

from nodeagent.sources.kubernetes.errors import ApiError, TooLargeError

_READ_AT_MOST = 65536
"""Bytes asked for at once; less is given as soon as it is there."""

LONGEST_LINE = 4 * 1024 * 1024
"""Bytes of a line. An event holds one object, of which etcd takes 1.5 MiB (its `--max-request-bytes`)."""


class LineSplitter:
    """Pure: bytes in pieces of any size into whole lines.

    What follows the last line end is kept for the next piece; at the stream's end it is worth nothing,
    since half an event tells nothing.
    """

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Gives the lines that this piece completes, without their line ends; empty lines are left out.

        Raises TooLargeError for a line that goes on beyond `LONGEST_LINE`: the stream is to be given up.
        """
        first, *others = piece.split(b"\n")
        self._unfinished.append(first)
        self._size += len(first)
        if self._size > LONGEST_LINE:
            raise TooLargeError(f"a line has more than {LONGEST_LINE} bytes: given up; a new list is due")
        if not others:
            return []
        lines = [b"".join(self._unfinished), *others[:-1]]
        self._unfinished = [others[-1]]
        self._size = len(others[-1])
        return [line for line in lines if line]


class LineStream(Iterator[bytes]):
    """The lines of one answer. Iteration ends where the server ends the answer; a break raises ApiError.

    Args:
        response: urllib3's response, of which nothing was read yet.
        translate: what a failure of the transport means, as our error.
        count: told the bytes read over the wire.
    """

    def __init__(
        self,
        response: Any,  # noqa: ANN401 - urllib3 is imported only where a connection is made
        translate: Callable[[Callable[[], bytes]], bytes],
        count: Callable[[int], None],
    ) -> None:
        self._response = response
        self._translate = translate
        self._count = count
        self._splitter = LineSplitter()
        self._lines: deque[bytes] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        while not self._lines:
            try:
                piece = self._translate(lambda: self._response.read1(_READ_AT_MOST, decode_content=False))
                if not piece:
                    raise StopIteration
                self._count(len(piece))
                self._lines.extend(self._splitter.feed(piece))
            except ApiError:
                self._response.close()
                raise
        return self._lines.popleft()

    def close(self) -> None:
        """Gives the connection up; for the thread that reads. Safe to call again."""
        self._response.close()

    def interrupt(self) -> None:
        """Makes the reading thread see the end at once; for any other thread. Safe to call again."""
        # It may have ended, or been closed by its own thread, at this very moment: then all is well.
        with suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()
