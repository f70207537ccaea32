"""Passes of the controller against a live API: what is written, what is not, and who puts it back."""

from collections.abc import Callable

import pytest

from nodeagent.coredns.lease import NotLeaderError
from nodeagent.coredns.reconciler import Keeper, Pass, Quarrel
from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes.cluster import read_cluster
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.node.identity import ApiServers
from tests.apiserver import ApiServer, faults, objects
from tests.coredns import corpus
from tests.coredns.clock import Clock
from tests.coredns.cluster import ADDRESS, CONFIG, add_name, config_map, corefile, fill, put
from tests.coredns.resolving import NO_RECORDS, PASSED_ON, Question, model_answer


class Kept:
    """A keeper and its cluster."""

    def __init__(self, api: ApiServer, connection: Connection) -> None:
        self.api = api
        self.clock = Clock()
        self.may_write: Callable[[], float] = lambda: 5.0
        self._connection = connection
        self._keeper = Keeper(connection, ApiServers(), self._asked, clock=self.clock)

    def _asked(self) -> float:
        return self.may_write()

    def make_pass(self) -> Pass:
        """One pass over the cluster as it is."""
        return self._keeper.make_pass(read_cluster(self._connection, "n1"), {}, CONFIG)

    def versions(self) -> str:
        """Which write the ConfigMap stands at."""
        version: str = config_map(self.api)["metadata"]["resourceVersion"]
        return version


@pytest.fixture
def keeper(api: ApiServer, connecting: Callable[[], Connection]) -> Kept:
    fill(api)
    return Kept(api, connecting())


def test_names_are_written_once_and_followed(api: ApiServer, keeper: Kept) -> None:
    done = keeper.make_pass()
    assert done.written == ("kube-system/coredns",)
    relay = model_answer(corefile(api), Question("app.example.com"))
    assert relay.startswith("169.254.66.")
    assert model_answer(corefile(api), Question("app.example.com", "AAAA")) == NO_RECORDS
    version = keeper.versions()
    assert keeper.make_pass().written == ()
    assert keeper.versions() == version
    add_name(api, "new.example.com")
    keeper.make_pass()
    assert model_answer(corefile(api), Question("new.example.com")) == relay
    api.store.delete("ingresses", "new", "default")
    keeper.make_pass()
    assert model_answer(corefile(api), Question("new.example.com")) == PASSED_ON


def test_a_name_that_nobody_vouches_for_is_refused_in_the_planner_s_words(keeper: Kept) -> None:
    add_name(keeper.api, "registry-1.docker.io")
    done = keeper.make_pass()
    refused = next(one for one in done.edits.decisions if one.name == "registry-1.docker.io")
    assert (refused.code, refused.reason) == ("NotProven", "not proven: no suffix in hosts.allow covers it")
    assert model_answer(corefile(keeper.api), Question("registry-1.docker.io")) == PASSED_ON


def test_a_wildcard_host_is_answered(keeper: Kept) -> None:
    add_name(keeper.api, "*.example.com")
    keeper.make_pass()
    assert model_answer(corefile(keeper.api), Question("any.example.com")).startswith("169.254.66.")
    assert model_answer(corefile(keeper.api), Question("a.b.example.com")) == PASSED_ON


def test_nothing_is_written_without_the_lease(api: ApiServer, keeper: Kept) -> None:
    def lost() -> float:
        raise NotLeaderError("the lease is another's")

    keeper.may_write = lost
    done = keeper.make_pass()
    assert done.errors == {"kube-system/coredns": "the lease is another's"}
    assert corefile(api) == corpus.corefile("kubeadm")


def test_a_write_of_somebody_else_in_between_is_not_undone(api: ApiServer, keeper: Kept) -> None:
    """The last moment before the write: the compare-and-swap is what holds then."""

    def meanwhile() -> float:
        put(api, {"Corefile": corpus.corefile("minikube")})
        return 5.0

    keeper.may_write = meanwhile
    done = keeper.make_pass()
    assert "409" in done.errors["kube-system/coredns"]
    assert corefile(api) == corpus.corefile("minikube")
    keeper.may_write = lambda: 5.0
    assert keeper.make_pass().written == ("kube-system/coredns",)
    assert "host.minikube.internal" in corefile(api)


def test_drift_is_repaired_and_an_owner_that_insists_is_reported_rather_than_fought(
    api: ApiServer, keeper: Kept
) -> None:
    keeper.make_pass()
    quarrels: list[Quarrel] = []
    for _ in range(3):
        put(api, {"Corefile": corpus.corefile("kubeadm")}, manager="helm-controller")
        done = keeper.make_pass()
        assert done.written
        quarrels += done.quarrels
        keeper.clock.pass_by(300)
    (quarrel,) = quarrels
    assert str(quarrel).startswith(
        "'helm-controller' put ConfigMap kube-system/coredns back 3 times in 600 s"
    )

    put(api, {"Corefile": corpus.corefile("kubeadm")}, manager="helm-controller")
    keeper.clock.pass_by(-290)
    done = keeper.make_pass()
    assert (done.written, done.held) == ((), ("kube-system/coredns",))
    assert corefile(api) == corpus.corefile("kubeadm")
    keeper.clock.pass_by(60)
    assert keeper.make_pass().written


def test_our_own_changes_are_no_quarrel(keeper: Kept) -> None:
    for number in range(10):
        add_name(keeper.api, f"site-{number}.example.com")
        done = keeper.make_pass()
        assert done.written
        assert not done.quarrels
        keeper.clock.pass_by(2)


@pytest.mark.parametrize(
    ("fault", "why"), [(faults.Answer(503), "503"), (faults.Disconnect(), "is the server up")]
)
def test_with_the_api_in_trouble_nothing_changes(keeper: Kept, fault: faults.RequestFault, why: str) -> None:
    keeper.api.faults.add(fault, path="*/configmaps/*", verbs={"get"}, times=1)
    with pytest.raises(SourceError, match=why):
        keeper.make_pass()
    assert corefile(keeper.api) == corpus.corefile("kubeadm")


def test_without_the_config_map_the_error_says_where_to_look(keeper: Kept) -> None:
    keeper.api.store.delete("configmaps", "coredns", "kube-system")
    with pytest.raises(SourceError, match=r"kube-system/coredns: no such ConfigMap; .* coredns\.configMap"):
        keeper.make_pass()


def test_a_cluster_with_an_import_config_map_has_its_corefile_left_alone(
    api: ApiServer, keeper: Kept
) -> None:
    put(api, {"Corefile": corpus.corefile("k3s")})
    put(api, {"mine.override": "log\n"}, "coredns-custom")
    assert keeper.make_pass().written == ("kube-system/coredns-custom",)
    assert corefile(api) == corpus.corefile("k3s")
    data = config_map(api, "coredns-custom")["data"]
    assert data.keys() == {"mine.override", "nodeagent.override"}
    assert data["mine.override"] == "log\n"


def test_five_thousand_names(api: ApiServer, keeper: Kept) -> None:
    names = [f"site-{number:04}.example.com" for number in range(5000)]
    api.store.create(objects.ingress("many", hosts=names, addresses=[ADDRESS], tls=False))
    done = keeper.make_pass()
    assert done.written == ("kube-system/coredns",)
    assert keeper.make_pass().written == ()
    assert model_answer(corefile(api), Question("site-4711.example.com")).startswith("169.254.66.")
    assert model_answer(corefile(api), Question("site-5000.example.com")) == PASSED_ON


@pytest.mark.parametrize(
    ("pod_cidrs", "answer"),
    [(("10.0.0.0/24",), NO_RECORDS), (("10.0.0.0/24", "fd00::/64"), "fd68:6169:7270:")],
)
def test_a_family_that_the_cluster_does_not_speak_is_not_answered(
    api: ApiServer, keeper: Kept, pod_cidrs: tuple[str, ...], answer: str
) -> None:
    addresses = ["203.0.113.10", "2001:db8::10"]
    api.store.apply(objects.load_balancer("controller", "ingress", addresses=addresses, annotations={}))
    api.store.create(objects.node("n1", pod_cidrs=pod_cidrs))
    keeper.make_pass()
    assert model_answer(corefile(api), Question("app.example.com")).startswith("169.254.66.")
    assert model_answer(corefile(api), Question("app.example.com", "AAAA")).startswith(answer)
