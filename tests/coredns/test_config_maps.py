"""ConfigMaps are replaced whole, by compare-and-swap, and never beyond the API's limits."""

from collections.abc import Callable

import pytest

from nodeagent.coredns.config_maps import PREVIOUS, CoreDnsConfigMap, changed, put_back_previous, read, write
from nodeagent.coredns.managed_block import with_blocks
from nodeagent.errors import ApplyError
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ConflictError, ForbiddenError
from tests.apiserver import ApiServer, Rule, objects
from tests.apiserver.resources import Object
from tests.coredns import corpus

USER = corpus.corefile("kubeadm")
EDITED = with_blocks(USER, lambda _: ["log"])


def stored(api: ApiServer) -> Object:
    found: Object = api.store.get("configmaps", "coredns", "kube-system")
    return found


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


def test_another_program_s_write_in_between_is_never_undone(api: ApiServer, connection: Connection) -> None:
    read_before = config_map(connection)
    theirs = stored(api)
    theirs["data"]["Corefile"] = USER + "# theirs\n"
    api.store.update(theirs)
    with pytest.raises(ConflictError):
        write(connection, read_before, {"Corefile": EDITED}, lambda: 5.0)
    assert stored(api)["data"]["Corefile"] == USER + "# theirs\n"


def test_the_previous_corefile_is_put_back_byte_for_byte(api: ApiServer, connection: Connection) -> None:
    write(connection, config_map(connection), {"Corefile": EDITED}, lambda: 5.0)
    damaged = stored(api)
    damaged["data"]["Corefile"] = "what a slip of the hand left\n"
    api.store.update(damaged)
    assert put_back_previous(connection, config_map(connection), 5.0)
    assert stored(api)["data"]["Corefile"] == USER
    assert not put_back_previous(connection, config_map(connection), 5.0)


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


def test_there_may_be_none(connecting: Callable[[], Connection]) -> None:
    assert read(connecting(), "kube-system", "coredns") is None


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
