"""Requests from a node, one after the other, for as long as something else is done."""

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from tests.acceptance.answers import Said
from tests.acceptance.cluster_place import ClusterPlace
from tests.acceptance.node_shell import PATIENCE
from tests.testbed.errors import WorldError
from tests.testbed.waiting import wait_until

PAUSE_SECONDS = 0.05
"""About twenty requests per second, then."""

_LONGEST_SECONDS = 1800
# It ends when the file is removed; and after half an hour, if no process is left to remove it.
_REQUESTS = """
: >"$1"
read -r now rest </proc/uptime
end=$((${now%.*} + $3))
answered=0
while [ -e "$1" ] && [ "${now%.*}" -lt "$end" ]; do
    if said=$(curl -q --silent --show-error --fail --max-time "$5" --output /dev/null "$2" 2>&1); then
        answered=$((answered + 1))
    else
        echo "failed: $said"
    fi
    sleep "$4"
    read -r now rest </proc/uptime
done
rm -f "$1"
echo "answered: $answered"
"""
_FILE = "/run/nodeagent-acceptance"


@dataclass
class Outcome:
    """What became of the requests; empty until they have ended."""

    answered: int = 0
    failures: tuple[str, ...] = ()


@contextmanager
def requests(place: ClusterPlace, node: str, url: str, pause: float = PAUSE_SECONDS) -> Iterator[Outcome]:
    """Ask for a page again and again, each time over a new connection, while the block runs.

    Args:
        place: The cluster.
        node: Who asks.
        url: What for.
        pause: Seconds between two requests.

    Yields:
        The outcome, which is filled in when the block has ended.

    Raises:
        WorldError: The requests could not be begun or counted.
    """
    outcome = Outcome()
    command = [
        "sh",
        "-c",
        _REQUESTS,
        "sh",
        _FILE,
        url,
        str(_LONGEST_SECONDS * PATIENCE),
        str(pause),
        str(10 * PATIENCE),
    ]
    with ThreadPoolExecutor(1) as thread:
        running: Future[Said] = thread.submit(place.on_node, node, command, seconds=_LONGEST_SECONDS + 60)
        try:
            wait_until(
                lambda: running.done() or _begun(place, node), f"requests from {node}", seconds=60 * PATIENCE
            )
            yield outcome
        finally:
            place.on_node(node, ["rm", "-f", _FILE])
        said = running.result()
    counted = re.search(r"^answered: (\d+)$", said.done.stdout, re.MULTILINE)
    if counted is None:
        raise WorldError(f"{node}: the requests ended early: {said.text}")
    outcome.answered = int(counted[1])
    outcome.failures = tuple(re.findall(r"^failed: (.*)$", said.done.stdout, re.MULTILINE))


def _begun(place: ClusterPlace, node: str) -> bool:
    return place.on_node(node, ["test", "-e", _FILE]).done.returncode == 0
