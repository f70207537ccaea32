"""The load balancer's controller: its address gets into statuses, by the rights of its manifests."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.apiserver import ApiServer, objects
from tests.apiserver.access import rules_bound_to
from tests.apiserver.server import Tls
from tests.testbed.certificates import make_certificate
from tests.testbed.vagrant import lb_address
from tests.testbed.vagrant.manifests import lb_address_objects
from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.apiserver import Object

_ADDRESS = "192.168.56.10"
_ACCOUNT = "system:serviceaccount:lb-address:lb-address"


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """A pod's directory of credentials."""
    directory = tmp_path / "account"
    directory.mkdir()
    make_certificate(directory / "ca.crt", directory / "key", "127.0.0.1")
    (directory / "token").write_text("the-token\n", encoding="ascii")
    return directory


@pytest.fixture
def api(account: Path) -> Iterator[ApiServer]:
    """An API server where the controller may do what the manifests allow, and nothing else."""
    with ApiServer(tls=Tls(account / "ca.crt", account / "key", account / "ca.crt")) as server:
        server.access.require_token("the-token", _ACCOUNT)
        server.access.allow_only(
            rules_bound_to(lb_address_objects(_ADDRESS), "lb-address", "lb-address"), _ACCOUNT
        )
        server.store.create(objects.service("web", "default"))
        server.store.create(_load_balancer("ingress", "ingress-nginx"))
        server.store.create(objects.ingress("site", "default"))
        yield server


@contextmanager
def _controller(api: ApiServer, account: Path) -> Iterator[subprocess.Popen[str]]:
    """Run it as its pod does."""
    command = [sys.executable, lb_address.__file__, "--address", _ADDRESS, "--server", api.url]
    with subprocess.Popen(
        [*command, "--account", str(account), "--every", "0.05"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _load_balancer(name: str, namespace: str) -> Object:
    """Return a Service as it is before it has an address."""
    return objects.service(name, namespace, kind="LoadBalancer")


def _addresses(api: ApiServer, plural: str, name: str, namespace: str) -> list[str]:
    status = api.store.get(plural, name, namespace).get("status", {})
    return [one["ip"] for one in status.get("loadBalancer", {}).get("ingress") or []]


def test_load_balancers_and_ingresses_get_the_address(api: ApiServer, account: Path) -> None:
    with _controller(api, account):
        wait_until(
            lambda: _addresses(api, "services", "ingress", "ingress-nginx") == [_ADDRESS],
            "the Service's status",
        )
        wait_until(
            lambda: _addresses(api, "ingresses", "site", "default") == [_ADDRESS], "the Ingress's status"
        )
        api.store.create(_load_balancer("later", "default"))
        wait_until(lambda: _addresses(api, "services", "later", "default") == [_ADDRESS], "a later Service's")
        # What another hand wrote is put right again.
        api.store.patch(
            "services", "later", "default", {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}}
        )
        wait_until(lambda: _addresses(api, "services", "later", "default") == [_ADDRESS], "the right address")
    assert _addresses(api, "services", "web", "default") == [], "no load balancer, no address"


def test_what_is_right_is_not_written_again(api: ApiServer, account: Path) -> None:
    done = lb_address.give_address(api.url, account, _ADDRESS)
    assert sorted(done) == [
        f"ingresses default/site: {_ADDRESS}",
        f"services ingress-nginx/ingress: {_ADDRESS}",
    ]
    revision = api.store.revision
    assert lb_address.give_address(api.url, account, _ADDRESS) == []
    assert api.store.revision == revision


def test_a_server_that_is_away_is_waited_for(api: ApiServer, account: Path) -> None:
    api.stop_listening()
    with _controller(api, account) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        assert "next try in 0.05 s" in told
        assert api.url in told
        api.start_listening()
        wait_until(
            lambda: _addresses(api, "services", "ingress", "ingress-nginx") == [_ADDRESS],
            "the Service's status",
        )
