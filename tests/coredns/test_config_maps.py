"""ConfigMaps are replaced whole, by compare-and-swap, and never beyond the API's limits."""

from collections.abc import Callable

import pytest

from nodeagent.coredns.coredns_reconciler import CoreDnsConfigMap, read, write
from nodeagent.coredns.managed_block import with_blocks
from nodeagent.errors import ApplyError
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ForbiddenError
from tests.apiserver import ApiServer, Rule, objects
from tests.coredns import corpus
from tests.coredns.cluster import config_map as stored

USER = corpus.corefile("kubeadm")
EDITED = with_blocks(USER, ["log"])


@pytest.fixture
def connection(api: ApiServer, connecting: Callable[[], Connection]) -> Connection:
    made = objects.config_map("coredns", "kube-system", {"Corefile": USER, "other": "x\r\n"})
    made["metadata"] |= {"labels": {"eks.amazonaws.com/component": "coredns"}, "annotations": {"a": "b"}}
    made["immutable"] = False
    api.store.create(made)
    return connecting()


def config_map(connection: Connection) -> CoreDnsConfigMap:
    found = read(connection, "kube-system", "coredns")
    assert found is not None
    return found


def test_all_else_of_the_object_stays(api: ApiServer, connection: Connection) -> None:
    before = stored(api)
    write(connection, config_map(connection), {"Corefile": EDITED})
    after = stored(api)
    assert after["data"] == {"Corefile": EDITED, "other": "x\r\n"}
    for gone in (before, after):
        del gone["data"], gone["metadata"]["resourceVersion"]
    assert after == before


def test_a_config_map_beyond_the_limit_is_refused_with_its_size(
    api: ApiServer, connection: Connection
) -> None:
    large = with_blocks(USER, ["# é" + "x" * (1 << 20)])
    with pytest.raises(ApplyError, match=r"kube-system/coredns would have 1,04\d,\d{3} bytes, .* 1,048,576"):
        write(connection, config_map(connection), {"Corefile": large})
    assert stored(api)["data"]["Corefile"] == USER


def test_a_missing_right_is_reported_as_the_rule_to_grant(api: ApiServer, connection: Connection) -> None:
    found = config_map(connection)
    api.access.allow_only([Rule([""], ["configmaps"], ["get"], ["coredns"], "kube-system")])
    with pytest.raises(ForbiddenError, match=r'a Role in namespace kube-system: .*verbs: \["update"\]'):
        write(connection, found, {"Corefile": EDITED})


def test_who_wrote_it_last() -> None:
    entries = [
        {"manager": "helm", "time": "2026-01-01T00:00:00Z"},
        {"manager": "kustomize-controller", "time": "2026-01-03T00:00:00Z"},
        {"manager": "nodeagent", "time": "2026-01-04T00:00:00Z"},
    ]
    assert (
        CoreDnsConfigMap(
            ObjectRef("ConfigMap", "a", "b"), {"metadata": {"managedFields": entries}}
        ).last_writer
        == "kustomize-controller"
    )
    assert CoreDnsConfigMap(ObjectRef("ConfigMap", "a", "b"), {"metadata": {}}).last_writer == ""
