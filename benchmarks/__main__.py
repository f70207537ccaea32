"""`python -m benchmarks`: measures, shows a table, and writes JSON where asked."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, starmap
from pathlib import Path

from benchmarks import (
    api_server,
    decisions,
    disturbed,
    everything,
    latency,
    redirects,
    resources,
    rest,
    verification,
)
from benchmarks.api import Api
from benchmarks.daemon import Daemon, running
from benchmarks.figures import Figure
from benchmarks.report import document, load, machine, tables
from tests.testbed.world import World

_WITH_AN_AGENT = ("latency", "memory", "growth", "cost", "cpu", "everything", "storm", "disturbed")
PARTS = (*_WITH_AN_AGENT, "decisions", "redirects", "dns", "rest", "api")
_NAMES = (0, 10, 1000, 10_000)
_EVENTS = 100
_EVENTS_AT_MANY = 15
_MANY = 5000
_CPU_NAMES = 1000
_GROWTH_EVENTS = 50_000
_REST_SECONDS = 2400.0
_CLUSTERS = ((100, True), (5000, True), (5000, False))
"""Nodes, and whether hostnames are wanted."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part; may be repeated")
    parser.add_argument("--names", type=int, action="append", metavar="N", help="only with N names standing")
    parser.add_argument(
        "--events", type=int, metavar="N", help="comings, and goings, of each kind for a latency"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="how long CPU time is counted")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser.parse_args()


def main() -> None:
    """Measure what the command line asks for. A goal that is missed is reported, but is not an error."""
    arguments = _arguments()
    figures: list[Figure] = []
    about = machine()
    for figure in _measured(arguments):
        sys.stderr.write(f"{figure.part}: {figure.what}\n")
        figures.append(figure)
    about["loadAfter"] = load()
    sys.stdout.write("".join(f"{key}: {value}\n" for key, value in about.items()))
    sys.stdout.write(f"{tables(figures)}\n")
    if arguments.json:
        arguments.json.write_bytes(document(figures, about))


def _measured(arguments: argparse.Namespace) -> Iterator[Figure]:
    parts = arguments.only or PARTS
    sizes = arguments.names or _NAMES
    if "decisions" in parts:
        yield from chain.from_iterable(decisions.measure(names) for names in sizes if names)
    if "redirects" in parts:
        yield from redirects.measure()
    if "api" in parts:
        yield from chain.from_iterable(api_server.measure(names) for names in sizes if names >= _CPU_NAMES)
        yield from chain.from_iterable(starmap(api_server.measure_nodes, _CLUSTERS))
    if set(parts) <= {"decisions", "redirects", "api"}:
        return
    with World() as world:
        api = Api(world)
        if "latency" in parts:
            yield latency.measure_api(api)
        for names in sizes:
            yield from _at_size(api, names, parts, arguments)
        for names in sizes:
            if "dns" in parts and names >= _CPU_NAMES:
                yield from verification.measure(api, names)
            if "rest" in parts and names == _CPU_NAMES:
                yield from rest.measure(api, names, _REST_SECONDS)
        api.close()


def _at_size(api: Api, names: int, parts: Sequence[str], arguments: argparse.Namespace) -> Iterator[Figure]:
    if not {*_WITH_AN_AGENT} & {*parts}:
        return
    standing = [f"site-{number:05}" for number in range(names)]
    api.hold_ingresses(standing)
    with running(api) as daemon:
        daemon.await_names(standing)
        if "memory" in parts:
            yield resources.memory(daemon, names)
            yield resources.first_list(daemon, names)
        if "latency" in parts and names:
            events = arguments.events or (_EVENTS_AT_MANY if names >= _MANY else _EVENTS)
            yield from latency.measure(api, daemon, names, events)
        if "cost" in parts and names:
            yield resources.each_ingress(api, daemon, names)
        if "memory" in parts and names:
            yield resources.each_event(api, daemon, names)
        if "cpu" in parts and (names == _CPU_NAMES or arguments.names):
            yield resources.idle(daemon, names, arguments.seconds)
            yield resources.busy(api, daemon, names, arguments.seconds)
        if "memory" in parts and names:
            yield resources.memory_later(daemon, names)
        yield from _large_changes(api, daemon, standing, parts)
        if "disturbed" in parts and (
            names == _CPU_NAMES or arguments.names
        ):  # last: the agent waits afterwards
            yield from disturbed.measure(daemon, names)


def _large_changes(api: Api, daemon: Daemon, standing: list[str], parts: Sequence[str]) -> Iterator[Figure]:
    if standing:
        names = len(standing)
        if "everything" in parts:
            yield from everything.measure(api, daemon, names)
        if "storm" in parts and names >= _CPU_NAMES:
            yield resources.storm(api, daemon, standing)
        if "growth" in parts and names == _CPU_NAMES:
            yield resources.growth(api, daemon, standing, _GROWTH_EVENTS)


if __name__ == "__main__":
    main()
