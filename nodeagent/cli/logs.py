"""Logs to standard error: one record per line, as text or as JSON.

The convention, for all of nodeagent: a constant sentence as the message, and all that varies as `fields` in
`extra` (which itself rejects keys such as `name`):

    2026-11-21T09:00:00.123Z INFO  Applied a change component=hosts change="12 names"

Control characters are written as escapes: no value begins a line of its own.
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

from nodeagent import __version__
from nodeagent.errors import NodeagentError, printable
from nodeagent.observe.transition_log import say
from nodeagent.sources.kubernetes.connection import Connection

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

# A container runtime splits lines at 16 KiB; a program's whole output need not be in the log.
_LONGEST = 4096

_PLAIN = re.compile(r"[^\s\"'=\\]+")


def configure(log_format: LogFormat, level: LogLevel) -> None:
    """Send all logs to standard error, libraries' only from warnings on; a second call replaces the first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(json_line if log_format == "json" else text_line))
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old.formatter, _Lines)]:
        root.removeHandler(old)
    root.addHandler(handler)
    number = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(logging.WARNING, number))
    logging.getLogger("nodeagent").setLevel(number)
    logging.captureWarnings(capture=True)


@contextmanager
def logging_to_stderr(log_format: LogFormat, level: LogLevel) -> Iterator[None]:
    """Configure the log; an error that ends the daemon is JSON, too, if the log is."""
    configure(log_format, level)
    try:
        yield
    except NodeagentError as error:
        if log_format == "text":
            raise
        say(logging.ERROR, "Could not run", reason=str(error))
        raise click.exceptions.Exit(1) from error


def say_start(connection: Connection, fields: Mapping[str, str]) -> None:
    """Log that a daemon starts."""
    host, port = connection.server
    say(logging.INFO, "Starting nodeagent", version=__version__, server=f"{host}:{port}", **fields)


def text_line(record: logging.LogRecord) -> str:
    """Return the record as one line for a person; a value with anything unusual in it is quoted."""
    words = [_time(record), f"{record.levelname:5}", printable(_shortened(record.getMessage()))]
    words += [f"{printable(key)}={_text_value(value)}" for key, value in _fields(record)]
    return " ".join(words)


def json_line(record: logging.LogRecord) -> str:
    """Return the record as one JSON object, ASCII only; a field that would hide a key of it gets a `_`."""
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
    def __init__(self, line: Callable[[logging.LogRecord], str]) -> None:
        super().__init__()
        self._line = line

    def format(self, record: logging.LogRecord) -> str:
        return self._line(record)


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
