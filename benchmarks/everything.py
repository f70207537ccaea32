"""CPU time of what touches every hostname: another configuration, node name or load balancer."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle

import yaml

from benchmarks.api import Api, JsonObject
from benchmarks.daemon import Cpu, Daemon
from benchmarks.figures import Figure
from tests.testbed.world import MANIFESTS

PART = "CPU time of a change of everything"
_TIMES = 4


def measure(api: Api, daemon: Daemon, names: int) -> Iterator[Figure]:
    """Measure each of them several times, from an agent at rest until it rests again."""
    suffixes = cycle(("one.example.org", "another.example.org"))
    reload = [partial(daemon.reload, {"exclude": [next(suffixes)]}) for _ in range(_TIMES)]
    yield _figure("the configuration", names, [_cost(daemon, each) for each in reload])
    (node, *_), service = _manifest("nodes"), _manifest("service")[0]
    rename = [
        partial(api.apply, node | {"status": {"addresses": [{"type": "Hostname", "address": name}]}})
        for name in ("one", "another") * (_TIMES // 2)
    ]
    yield _figure("the node's names", names, [_cost(daemon, each) for each in rename])
    delete = partial(
        api.delete, "services", service["metadata"]["name"], namespace=service["metadata"]["namespace"]
    )
    going, coming = [], []
    for _ in range(_TIMES):
        going.append(_cost(daemon, delete))
        coming.append(_cost(daemon, partial(api.apply, service)))
    yield _figure("the load balancer of all deleted", names, going)
    yield _figure("the load balancer of all created", names, coming)


def _cost(daemon: Daemon, change: Callable[[], None]) -> Cpu:
    daemon.await_rest()
    before = daemon.cpu()
    change()
    daemon.await_rest()
    return daemon.cpu() - before


def _figure(what: str, names: int, used: list[Cpu]) -> Figure:
    columns = {
        "agent": sum(each.own for each in used) * 1000 / len(used),
        "programs": sum(each.children for each in used) * 1000 / len(used),
    }
    return Figure(PART, what, "ms", names, columns)


def _manifest(name: str) -> list[JsonObject]:
    return list(yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text(encoding="utf-8")))
