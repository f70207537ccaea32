"""CPU time of the agent while other programs change the node, next to it or against it."""

import time
from collections.abc import Iterator

from benchmarks.daemon import Daemon
from benchmarks.figures import Figure, Goal

DISTURBED = "CPU time while other programs change the node"
_SECONDS = 10.0
# Each a program of its own in the node's namespaces, until it is stopped.
_ANOTHER_TABLE = """
import subprocess, time
nft = subprocess.Popen(["nft", "-i"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
nft.stdin.write("add table inet other\\nadd set inet other addresses { type ipv4_addr; }\\n")
while True:
    nft.stdin.write("add element inet other addresses { 192.0.2.7 }\\n")
    nft.stdin.write("delete element inet other addresses { 192.0.2.7 }\\n")
    nft.stdin.flush()
    time.sleep(0.02)
"""
_SAME_LINES = """
from pathlib import Path
import time
hosts = Path("/etc/hosts")
while True:
    if b"nodeagent" in hosts.read_bytes():
        hosts.write_bytes(b"127.0.0.1 localhost\\n")
    time.sleep(0.001)
"""
_BOTH = (
    (_ANOTHER_TABLE, "another table changed 100 times a second", 5.0),
    (_SAME_LINES, "the same lines", 10.0),
)


def measure(daemon: Daemon, names: int) -> Iterator[Figure]:
    """Measure each for ten seconds, in percent of a core, with the programs that the agent runs."""
    for program, what, limit in _BOTH:
        process = daemon.node.popen(["python3", "-c", program], log="disturbing")
        before, began = daemon.cpu().whole, time.monotonic()
        time.sleep(_SECONDS)
        percent = (daemon.cpu().whole - before) * 100 / (time.monotonic() - began)
        process.stop()
        yield Figure(DISTURBED, what, "%", names, {"whole": percent}, Goal("whole", limit))
