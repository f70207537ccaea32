"""Logs to standard error: one record per line, as text or as JSON.

The convention, for all of nodeagent: a constant sentence as the message, and all that varies as fields.

    log = logging.getLogger(__name__)
    log.info("applied", extra={"fields": {"component": "hosts", "names": 12}})

(`extra` alone would not work: the library rejects keys such as `name`.) As text, and as JSON (on one line):

    2026-11-21T09:00:00.123Z INFO  applied component=hosts names=12
    {"time": "2026-11-21T09:00:00.123Z", "level": "INFO", "logger": "nodeagent.agent.loop",
     "message": "applied", "component": "hosts", "names": 12}

Values from elsewhere (names of objects, answers of programs) can't begin a line of their own: control
characters are written as escapes. An exception is one field. Secrets don't belong in a log call.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

import click

from nodeagent.errors import NodeagentError, printable
from nodeagent.observe.transition_log import say

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

# A container runtime splits lines at 16 KiB; a program's whole output need not be in the log.
_LONGEST = 4096

_PLAIN = re.compile(r"[^\s\"'=\\]+")


def configure(log_format: LogFormat, level: LogLevel) -> None:
    """Send all logs of this process to standard error; called again, it replaces what it set up.

    Args:
        log_format: how a record is written.
        level: the minimum level of nodeagent's own records. For libraries it is warning: below that, they log
            whole requests and answers.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(json_line if log_format == "json" else text_line))
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old.formatter, _Lines)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(logging.WARNING, _number(level)))
    logging.getLogger("nodeagent").setLevel(_number(level))
    logging.captureWarnings(capture=True)


@contextmanager
def errors_logged(log_format: LogFormat) -> Iterator[None]:
    """Log what ends a daemon as JSON, if its log is JSON, as all that reads it expects."""
    try:
        yield
    except NodeagentError as error:
        if log_format == "text":
            raise
        say(logging.ERROR, "Could not run", {"reason": str(error)})
        raise click.exceptions.Exit(1) from error


def text_line(record: logging.LogRecord) -> str:
    """Return the record as one line for a person; a value with anything unusual in it is quoted. Pure."""
    words = [_time(record), f"{record.levelname:5}", printable(_shortened(record.getMessage()))]
    words += [f"{printable(key)}={_text_value(value)}" for key, value in _fields(record)]
    return " ".join(words)


def json_line(record: logging.LogRecord) -> str:
    """Return the record as one JSON object, ASCII only. Pure.

    A field that would hide time, level, logger or message gets an underscore after its name.
    """
    line: dict[str, object] = {
        "time": _time(record),
        "level": record.levelname,
        "logger": record.name,
        "message": _shortened(record.getMessage()),
    }
    own = frozenset(line)
    for key, value in _fields(record):
        line[f"{key}_" if key in own else key] = _shortened(value) if isinstance(value, str) else value
    return json.dumps(line, default=lambda other: _shortened(str(other)))


class _Lines(logging.Formatter):
    """Formats a record with a function."""

    def __init__(self, line: Callable[[logging.LogRecord], str]) -> None:
        super().__init__()
        self._line = line

    def format(self, record: logging.LogRecord) -> str:
        return self._line(record)


def _number(level: LogLevel) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """Yield the record's fields, the exception and the stack as the last ones."""
    fields = getattr(record, "fields", None)
    if isinstance(fields, Mapping):
        for key, value in fields.items():
            yield str(key), value
    if record.exc_info and record.exc_info[0] is not None:
        yield "exception", logging.Formatter().formatException(record.exc_info)
    if record.stack_info:
        yield "stack", record.stack_info


def _text_value(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    text = _shortened(str(value))
    if _PLAIN.fullmatch(text) and text.isprintable():
        return text
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(quoted)}"'


def _shortened(text: str) -> str:
    """Cut out the middle of a long text: an error's end says most."""
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]} [{len(text) - 2 * half} characters left out] {text[-half:]}"
