"""ConfigMaps are replaced whole, by compare-and-swap, and never beyond the API's limits."""

from collections.abc import Callable

import pytest

from nodeagent.coredns.config_maps import PREVIOUS, CoreDnsConfigMap, changed, read, write
from nodeagent.coredns.managed_block import with_blocks
from nodeagent.errors import ApplyError
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ForbiddenError
from tests.apiserver import ApiServer, Rule, objects
from tests.coredns import corpus
from tests.coredns.cluster import config_map as stored

USER = corpus.corefile("kubeadm")
EDITED = with_blocks(USER, lambda _: ["log"])


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


def test_all_else_of_the_object_stays_and_the_previous_corefile_is_kept(
    api: ApiServer, connection: Connection
) -> None:
    before = stored(api)
    write(connection, config_map(connection), {"Corefile": EDITED}, lambda: 5.0)
    after = stored(api)
    assert after["data"] == {"Corefile": EDITED, "other": "x\r\n"}
    assert after["metadata"]["annotations"] == {"a": "b", PREVIOUS: USER}
    for gone in (before, after):
        del gone["data"], gone["metadata"]["annotations"], gone["metadata"]["resourceVersion"]
    assert after == before


def test_what_was_kept_stays_with_further_edits_and_goes_with_the_block(
    api: ApiServer, connection: Connection
) -> None:
    write(connection, config_map(connection), {"Corefile": EDITED}, lambda: 5.0)
    again = with_blocks(EDITED.replace("    errors", "    log\n    errors"), lambda _: ["debug"])
    write(connection, config_map(connection), {"Corefile": again}, lambda: 5.0)
    assert stored(api)["metadata"]["annotations"][PREVIOUS] == USER
    write(connection, config_map(connection), {"Corefile": USER}, lambda: 5.0)
    assert stored(api)["metadata"]["annotations"] == {"a": "b"}


def test_a_config_map_beyond_the_limit_is_refused_with_its_size(
    api: ApiServer, connection: Connection
) -> None:
    large = with_blocks(USER, lambda _: ["# é" + "x" * (1 << 20)])
    with pytest.raises(ApplyError, match=r"kube-system/coredns would have 1,04\d,\d{3} bytes, .* 1,048,576"):
        write(connection, config_map(connection), {"Corefile": large}, lambda: 5.0)
    assert stored(api)["data"]["Corefile"] == USER


def test_a_corefile_too_long_for_an_annotation_is_not_kept_but_edited(connection: Connection) -> None:
    found = config_map(connection)
    long = USER + "# " + "x" * (256 << 10)
    body = changed(found, {"Corefile": with_blocks(long, lambda _: ["log"])}, long)
    assert body["metadata"]["annotations"] == {"a": "b"}


def test_a_missing_right_is_reported_as_the_rule_to_grant(api: ApiServer, connection: Connection) -> None:
    found = config_map(connection)
    api.access.allow_only([Rule([""], ["configmaps"], ["get"], ["coredns"], "kube-system")])
    with pytest.raises(ForbiddenError, match=r'a Role in namespace kube-system: .*verbs: \["update"\]'):
        write(connection, found, {"Corefile": EDITED}, lambda: 5.0)


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
