import socket
import threading
import time
from pathlib import Path

import pytest

from nodeagent.sources import api_servers
from nodeagent.sources.api_servers import ApiServers, ServerLookups, find_api_servers
from tests.cases import cases_of
from tests.plan.made_up import endpoint
from tests.testbed.waiting import wait_until

CASES = cases_of(__file__, "cases.yaml")


@pytest.fixture(autouse=True)
def _no_kubelet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may be a node itself."""
    monkeypatch.setattr(api_servers, "KUBELET_KUBECONFIGS", ())


def kubeconfig(directory: Path, *servers: str) -> Path:
    clusters = "".join(f'- {{name: c{i}, cluster: {{server: "{url}"}}}}\n' for i, url in enumerate(servers))
    file = directory / "kubeconfig"
    file.write_text(f"apiVersion: v1\nkind: Config\nclusters:\n{clusters}", encoding="utf-8")
    return file


@pytest.mark.parametrize(("url", "expected"), CASES["servers"])
def test_the_server_of_a_kubeconfig_is_found(tmp_path: Path, url: str, expected: str) -> None:
    assert find_api_servers([kubeconfig(tmp_path, url)], {}) == ApiServers(frozenset({endpoint(expected)}))


def test_every_cluster_of_kubelets_own_kubeconfig_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever context is in use. It is the one that must not be cut off."""
    file = kubeconfig(tmp_path, "https://192.0.2.10:6443", "https://192.0.2.11:6443")
    monkeypatch.setattr(api_servers, "KUBELET_KUBECONFIGS", (tmp_path / "absent", file))
    servers = {endpoint("192.0.2.10:6443"), endpoint("192.0.2.11:6443")}
    assert find_api_servers((), {}).endpoints == servers


@pytest.mark.parametrize(("environment", "expected"), CASES["environments"])
def test_the_environment_of_a_pod_counts(environment: dict[str, str], expected: list[str]) -> None:
    assert find_api_servers((), environment).endpoints == set(map(endpoint, expected))


class _Dns:
    """What the C library answers: addresses, or nothing as long as it is not to speak."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses = ["192.0.2.10"]
        self.asked: list[object] = []
        self.speaks = threading.Event()
        self.speaks.set()
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        self.asked.append(host)
        assert self.speaks.wait(10)
        if not self.addresses:
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return [(socket.AF_INET, 1, 6, "", (address, 0)) for address in self.addresses]


def test_a_name_is_kept_and_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both what it is called and where it is are to be left alone; a name that can't be resolved, too."""
    dns = _Dns(monkeypatch)
    dns.addresses = ["192.0.2.10", "192.0.2.11"]
    file = kubeconfig(tmp_path, "https://API.example.com:6443")
    servers = frozenset({endpoint("192.0.2.10:6443"), endpoint("192.0.2.11:6443")})
    assert find_api_servers([file], {}) == ApiServers(servers, frozenset({"api.example.com"}))
    assert dns.asked == ["api.example.com"]
    dns.addresses = []
    found = find_api_servers([file], {})
    assert found.names == {"api.example.com"}
    assert not found.endpoints
    (note,) = found.notes
    assert "api.example.com can't be resolved" in note


@pytest.mark.parametrize("refused", [FileNotFoundError, NotADirectoryError, PermissionError])
def test_a_kubeconfig_that_is_absent_or_may_not_be_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: type[OSError]
) -> None:
    """A dry run needs none, and an ordinary user can't read kubelet's."""

    def refuse(*_: object, **__: object) -> str:
        raise refused

    monkeypatch.setattr(Path, "read_text", refuse)
    assert find_api_servers([tmp_path / "kubelet.conf"], {}) == ApiServers()


@pytest.mark.parametrize(("content", "noted"), [*CASES["odd_kubeconfigs"], ("\xff\xfe", True)])
def test_a_kubeconfig_that_makes_no_sense_is_noted(tmp_path: Path, content: str, *, noted: bool) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content, encoding="latin-1")
    found = find_api_servers([file], {})
    assert found.endpoints == frozenset()
    assert [note.startswith(f"{file}: ") for note in found.notes] == [True] * noted


def test_what_a_name_resolved_to_stays_known_while_dns_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server must not be redirected then, of all times."""
    dns, lookups = _Dns(monkeypatch), ServerLookups()
    server = [("api.example.com", 6443)]
    assert find_api_servers((), {}, server, lookups).notes == ()
    dns.addresses = []
    found = find_api_servers((), {}, server, lookups)
    assert found.endpoints == {endpoint("192.0.2.10:6443")}
    (note,) = found.notes
    assert "[Errno -3]" in note
    dns.addresses = ["192.0.2.11"]
    assert find_api_servers((), {}, server, lookups) == ApiServers(
        frozenset({endpoint("192.0.2.11:6443")}), frozenset({"api.example.com"})
    )


def test_a_dns_server_that_does_not_answer_delays_a_daemon_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library asks each server several times, for five seconds each."""
    dns, lookups = _Dns(monkeypatch), ServerLookups(again_seconds=0.1)
    server = [("api.example.com", 6443)]
    find_api_servers((), {}, server, lookups)
    dns.speaks.clear()
    began = time.monotonic()
    for _ in range(5):
        found = find_api_servers((), {}, server, lookups)
        assert found.endpoints == {endpoint("192.0.2.10:6443")}
        assert "no answer yet" in found.notes[0]
    assert time.monotonic() - began < 5
    assert len(dns.asked) == 2, "a lookup that goes on is not repeated"
    dns.speaks.set()
    wait_until(lambda: find_api_servers((), {}, server, lookups).notes == (), "the answer")


_IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_what_the_cluster_publishes_is_known_too() -> None:
    found = find_api_servers((), _IN_A_POD).with_published(frozenset({endpoint("192.0.2.10:6443")}))
    assert found.endpoints == {endpoint("10.96.0.1:443"), endpoint("192.0.2.10:6443")}
    assert found.notes == ()


@pytest.mark.parametrize(
    ("server", "known"), [("", False), ("https://127.0.0.1:6444", False), ("https://192.0.2.10:6443", True)]
)
def test_a_pod_that_knows_no_real_address_says_so(tmp_path: Path, server: str, *, known: bool) -> None:
    """The Service's address and a local load balancer, such as k3s', are none; kubelet's own is one."""
    files = [kubeconfig(tmp_path, server)] if server else []
    notes = find_api_servers(files, _IN_A_POD, [("10.96.0.1", 443)]).with_published(frozenset()).notes
    assert ["real address is unknown" in note for note in notes] == [True] * (not known)
