import json
import logging
import warnings
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.cli.logs import LogFormat, LogLevel, configure, json_line, text_line
from tests.cases import cases_of

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

MOMENT = datetime(2026, 11, 21, 9, 0, 0, 123456, tzinfo=UTC)


def record(message: str = "applied", level: int = logging.INFO, /, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("nodeagent.agent.loop", level, __file__, 1, message, None, None)
    made.created = MOMENT.timestamp()
    made.fields = fields
    return made


def failed() -> logging.LogRecord:
    made = record("could not apply", logging.ERROR, component="dnat")
    try:
        apply()
    except ValueError as error:
        made.exc_info = (ValueError, error, error.__traceback__)
    return made


def apply() -> None:
    raise ValueError("nft said:\nno such table")


def test_text_is_time_level_message_and_fields() -> None:
    assert text_line(record(component="hosts", names=12, seconds=0.5, ok=True, at=None)) == (
        "2026-11-21T09:00:00.123Z INFO  applied component=hosts names=12 seconds=0.5 ok=true at=null"
    )
    assert text_line(record("slow", logging.WARNING)) == "2026-11-21T09:00:00.123Z WARNING slow"


def test_json_is_one_object_with_the_same() -> None:
    """Numbers, lists and mappings stay what they are; what JSON does not know becomes text."""
    counts = {"added": 1, 2: [None, ("a", "b")]}
    fields = {"component": "hosts", "names": 12, "counts": counts}
    line = json_line(record(**fields, address=ip_address("192.0.2.1")))
    assert json.loads(line) == {
        "time": "2026-11-21T09:00:00.123Z",
        "level": "INFO",
        "logger": "nodeagent.agent.loop",
        "message": "applied",
        "component": "hosts",
        "names": 12,
        "counts": {"added": 1, "2": [None, ["a", "b"]]},
        "address": "192.0.2.1",
    }


@pytest.mark.parametrize(
    ("value", "written"), [*cases_of(__file__, "cases.yaml")["values"], ("\udc80", '"\\udc80"')]
)
def test_a_value_with_anything_unusual_is_quoted_and_escaped(value: str, written: str) -> None:
    assert text_line(record(value=value)).endswith(f" value={written}")


@given(st.text(), st.text(), st.text())
def test_no_text_breaks_out_of_its_line(message: str, key: str, value: str) -> None:
    hostile = record(message, **{key: value})
    assert text_line(hostile).isprintable()
    line = json_line(hostile)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["level"] == "INFO"


def test_a_field_can_not_hide_what_the_record_itself_says() -> None:
    line = json.loads(json_line(record(level="ERROR", time="never", message="forged", logger="root")))
    assert (line["level"], line["message"], line["time"]) == ("INFO", "applied", "2026-11-21T09:00:00.123Z")
    assert (line["level_"], line["message_"]) == ("ERROR", "forged")


def test_an_exception_is_one_field_of_its_line() -> None:
    text = text_line(failed())
    assert len(text.splitlines()) == 1
    assert ' could not apply component=dnat exception="Traceback ' in text
    assert text.endswith('ValueError: nft said:\\nno such table"')
    assert json.loads(json_line(failed()))["exception"].endswith("ValueError: nft said:\nno such table")


def test_a_very_long_value_is_cut_in_its_middle() -> None:
    """Lines stay below what container runtimes cut; begin and end are kept."""
    text = json.loads(json_line(record(output="a" * 100_000 + "the end")))["output"]
    assert len(text) < 5000
    assert "characters left out" in text
    assert text.endswith("the end")
    assert text_line(record(output="a" * 4096)).endswith(f" output={'a' * 4096}")
    assert "[1 characters left out]" in text_line(record(output="a" * 4097))


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_records_go_to_standard_error_one_line_each(
    log_format: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("text", "debug")
    configure(log_format, "info")
    log = logging.getLogger("nodeagent.agent.loop")
    log.info("applied", extra={"fields": {"name": "shop.example.com"}})
    log.warning("%s", "100 % done", extra={"fields": {"name": "shop.example.com"}})
    log.debug("not shown")

    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert "100 % done" in second
    assert "shop.example.com" in first
    told = json.loads(first)["time"] if log_format == "json" else first.split()[0]
    assert abs(datetime.now(UTC) - datetime.fromisoformat(told)) < timedelta(seconds=5)


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level_is_for_our_own_records(
    level: LogLevel, shown: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client library's debug output may hold whole requests: it is not shown at any level."""
    configure("text", level)
    for each in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logging.getLogger("nodeagent.sources").log(each, "ours")
        logging.getLogger("kubernetes.client.rest").log(each, "theirs")

    lines = capsys.readouterr().err.splitlines()
    assert sum("ours" in line for line in lines) == shown
    assert sum("theirs" in line for line in lines) == min(shown, 2)


def test_warnings_of_libraries_are_records_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "info")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old\nthing", UserWarning, stacklevel=1)

    (line,) = capsys.readouterr().err.splitlines()
    assert "old\nthing" in json.loads(line)["message"]
