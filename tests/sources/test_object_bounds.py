"""One object asks for so many hosts and no more, and its annotations are no place to keep a book."""

from typing import Any

import pytest

from nodeagent.model.objects import Ingress, Service
from nodeagent.sources.objects.decoding import MOST_HOSTS, decode_ingress, decode_service
from nodeagent.sources.objects.kinds import CONTROLLER_KINDS


def _hosts(count: int) -> list[str]:
    return [f"h{number}.example.com" for number in range(count)]


def _ingress(hosts: list[str]) -> Ingress:
    rules = [{"host": host} for host in hosts]
    return decode_ingress({"metadata": {"name": "many"}, "spec": {"rules": rules}})


def test_hosts_of_an_ingress_beyond_the_bound_are_told_and_left_out() -> None:
    assert len(_ingress(_hosts(MOST_HOSTS)).hosts) == MOST_HOSTS
    assert _ingress(_hosts(MOST_HOSTS)).problems == ()
    found = _ingress(_hosts(MOST_HOSTS + 5))
    assert list(found.hosts) == _hosts(MOST_HOSTS)
    assert found.problems == (f"more than {MOST_HOSTS} hosts: those beyond are not read",)


def test_hosts_of_a_virtual_service_have_the_same_bound() -> None:
    (kind,) = [one for one in CONTROLLER_KINDS if one.kind == "VirtualService"]
    spec: dict[str, Any] = {"gateways": ["x"], "hosts": _hosts(MOST_HOSTS + 5)}
    found = kind.decode({"metadata": {"name": "many"}, "spec": spec})
    assert found is not None
    assert len(found.hosts) == MOST_HOSTS


@pytest.mark.parametrize(("length", "kept"), [(4096, True), (4097, False)])
def test_a_long_annotation_is_not_read(length: int, *, kept: bool) -> None:
    annotations = {"example.com/a": "x" * length, "nodeagent.io/proxy-protocol": "v2"}
    found = decode_service(
        {"metadata": {"name": "lb", "annotations": annotations}, "spec": {"type": "LoadBalancer"}}
    )
    assert isinstance(found, Service)
    assert ("example.com/a" in found.annotations) == kept
    assert found.annotations["nodeagent.io/proxy-protocol"] == "v2"
    assert len(found.problems) == (0 if kept else 1)
