"""Asks the agents, many at a time: each by one `cat` in its pod. EFFECTS: runs programs in pods."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.agent.telemetry.status_file import status_path
from nodeagent.config.options import Config
from nodeagent.errors import SourceError
from nodeagent.fleet.roster import AGENT, Seat
from nodeagent.fleet.row import NodeRow, UnreadableAnswerError, failed, of_document, of_report, unasked
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ForbiddenError
from nodeagent.sources.kubernetes.workloads import Container, Executed, NotRunError, execute

MOST_AT_ONCE: Final = 256
_STATUS_EXITS = frozenset({0, 2})
"""Of `nodeagent status`: in sync, drifted. With 1 something was not readable, and it may print a document."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How agents are asked.

    Attributes:
        connection: to the API server.
        namespace: where the DaemonSet is.
        at_once: how many nodes at a time.
        timeout: seconds for each node.
        run_dir: the agents' `relay.runDir`.
    """

    connection: Connection
    namespace: str
    at_once: int = 64
    timeout: float = 10.0
    run_dir: Path = Path(Config().relay.run_dir)


def ask_all(asking: Asking, roster: Iterable[Seat]) -> Iterator[NodeRow]:
    """Yield a row for each node, in the order in which they answer.

    Raises:
        ForbiddenError: RBAC denies pods/exec: so it would for every node.
    """
    pool = ThreadPoolExecutor(asking.at_once, thread_name_prefix="fleet")
    try:
        for answered in as_completed([pool.submit(ask, asking, seat) for seat in roster]):
            yield answered.result()
    finally:
        # On Ctrl-C, or where one error is every node's: those under way end within their time limit.
        pool.shutdown(wait=False, cancel_futures=True)


def ask(asking: Asking, seat: Seat) -> NodeRow:
    """Ask one node. Whatever goes wrong on its way is its row; only ForbiddenError is raised."""
    row = unasked(seat)
    if row is not None or seat.pod is None:
        return row or failed(seat, "no-pod", "")
    try:
        return _asked(asking, seat, Container(asking.namespace, seat.pod.name, AGENT))
    except UnreadableAnswerError as error:
        return failed(seat, "unreadable", str(error))
    except ForbiddenError:
        raise
    except SourceError as error:
        return failed(seat, "not-answering", str(error))


def _asked(asking: Asking, seat: Seat, container: Container) -> NodeRow:
    def run(*command: str) -> Executed:
        return execute(asking.connection, container, command, asking.timeout)

    document = str(status_path(asking.run_dir))
    try:
        done = run("cat", "/proc/uptime", document)
    except NotRunError as error:
        done = Executed(1, b"", str(error))
    if done.exit_code == 0:
        return of_document(seat, done.stdout)
    # An agent that does not write on its node (yet), or one without such a document: it costs the node more.
    report = run("nodeagent", "status", "-o", "json")
    if report.exit_code not in _STATUS_EXITS and not report.stdout:
        last = (report.stderr.strip() or report.failure).splitlines()[-1:]
        reason = f"`nodeagent status` ended with {report.exit_code}: {''.join(last)}"
        return failed(seat, "not-answering", reason)
    return of_report(seat, report.stdout)
