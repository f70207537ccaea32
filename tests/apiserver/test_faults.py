"""The same faults before the simulated API server and before a real one: the client takes nothing away."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nodeagent.sources.kubernetes.connection import connect
from tests.cases import cases_of
from tests.sources.kubernetes.watching import QUICK, until, watching

from . import faults, objects
from .server import ApiServer, Proxy, write_kubeconfig
from .servers import ADMIN, Server
from .traffic import Ending
from .wire import Peer, request

_ALL = "/apis/networking.k8s.io/v1/ingresses"
_OF_A_NAMESPACE = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
_NUMBERS = count()


@pytest.mark.parametrize(("verb", "fault"), cases_of(__file__, "cases.yaml")["faults"])
def test_no_fault_takes_anything_away(
    server: Server, tmp_path: Path, verb: str, fault: dict[str, Any]
) -> None:
    kept, new = (f"i{next(_NUMBERS)}" for _ in range(2))
    assert request(server.admin, "POST", _OF_A_NAMESPACE, objects.ingress(kept))[0] == 201
    with Proxy(server.admin) as proxy, ExitStack() as stack:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", {"server": proxy.url}, ADMIN)
        connection = stack.enter_context(connect(kubeconfig))
        watched = stack.enter_context(watching(proxy, connection, timing=replace(QUICK, idle_timeout=1.0)))
        armed = proxy.faults.add(faults.made(**fault), path=_ALL, verbs={verb}, times=2)
        if verb == "list":
            proxy.faults.add(faults.Answer(410), path=_ALL, verbs={"watch"})
        proxy.end_watches(Ending.DROP)
        assert request(server.admin, "POST", _OF_A_NAMESPACE, objects.ingress(new))[0] == 201

        def has_both() -> bool:
            found = watched.ingresses()
            assert kept in found
            return armed.used > 0 and new in found

        until(has_both, "the new Ingress")


def test_the_end_of_the_proxys_streams_cuts_no_other_answer(api: ApiServer) -> None:
    held = faults.Hold()
    api.faults.add(held)
    with Proxy(Peer(api.port)) as proxy, ThreadPoolExecutor() as asking:
        answer = asking.submit(request, Peer(proxy.port), "GET", _ALL)
        held.wait_until_held()
        proxy.end_watches(Ending.DROP)
        held.release()
        assert answer.result()[0] == 200
