"""HAProxy's master process, asked over its own socket (management manual 9.4, "Master CLI")."""

import re
import time
from enum import StrEnum
from pathlib import PurePath

from msgspec import Struct

from nodeagent.components.relay.unix_socket import Silence, Unreachable, ask

# 1162   master   5 [failed: 0]   0d00h02m07s   2.6.12
_ROW = re.compile(
    r"(?P<pid>\d+)\s+\w+\s+(?P<reloads>\d+)(?: \[failed: (?P<failed>\d+)\])?"
    r"\s+\S+\s+(?P<version>\S+)"
)

_PAUSE_SECONDS = 0.002


class Processes(Struct, frozen=True):
    """The master and its workers, by process id in HAProxy's own pid namespace.

    `reloads` counts attempts; `failed_reloads` those that failed since the last that succeeded.
    """

    master: int
    workers: tuple[int, ...]
    old_workers: tuple[int, ...]
    reloads: int
    failed_reloads: int
    version: str


class Outcome(StrEnum):
    """What the master said to `reload`."""

    TAKEN = "taken"
    """It executes itself anew; how that ends shows later. All that 2.6 and older say."""
    DONE = "done"
    REFUSED = "refused"
    """The new configuration failed; the old worker goes on."""


class Reload(Struct, frozen=True):
    """The master's answer to `reload`, with its log where it gives one (2.7 and newer)."""

    outcome: Outcome
    log: str = ""


def processes(path: PurePath, timeout: float) -> Processes | Unreachable:
    """The processes of the master behind the socket at `path`; `timeout` in seconds.

    A master that executes itself anew cuts connections for a moment, so it is asked again until the timeout.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = ask(path, "show proc", max(0.0, deadline - time.monotonic()))
        found = _cut(path) if answer == "" else answer
        if not isinstance(found, Unreachable):
            return _parse(path, found)
        if found.why is not Silence.CUT or time.monotonic() + _PAUSE_SECONDS >= deadline:
            return found
        time.sleep(_PAUSE_SECONDS)


def reload(path: PurePath, timeout: float) -> Reload | Unreachable:
    """Makes the master read its configuration again; `timeout` in seconds.

    2.7 and newer answer `Success=1` or `Success=0`, then `--` and the log of the attempt. Older ones answer
    nothing: the connection ends, or is cut, as the master executes itself.
    """
    answer = ask(path, "reload", timeout)
    if isinstance(answer, Unreachable):
        return Reload(Outcome.TAKEN) if answer.why is Silence.CUT else answer
    verdict, _, log = answer.strip().partition("\n")
    match verdict.strip():
        case "Success=1":
            return Reload(Outcome.DONE, log.removeprefix("--").strip())
        case "Success=0":
            return Reload(Outcome.REFUSED, log.removeprefix("--").strip())
        case _:
            return Reload(Outcome.TAKEN, answer.strip())


def _parse(path: PurePath, answer: str) -> Processes | Unreachable:
    rows: dict[str, list[re.Match[str]]] = {"master": [], "workers": [], "old workers": []}
    heading = "master"
    for line in answer.splitlines():
        if line.startswith("# "):
            heading = line[2:].strip()
        elif heading in rows and (row := _ROW.match(line)):
            rows[heading].append(row)
    if not rows["master"]:
        return _cut(path)
    master = rows["master"][0]
    return Processes(
        master=int(master["pid"]),
        workers=tuple(int(row["pid"]) for row in rows["workers"]),
        old_workers=tuple(int(row["pid"]) for row in rows["old workers"]),
        reloads=int(master["reloads"]),
        failed_reloads=int(master["failed"] or 0),
        version=master["version"],
    )


def _cut(path: PurePath) -> Unreachable:
    return Unreachable(str(path), Silence.CUT)
