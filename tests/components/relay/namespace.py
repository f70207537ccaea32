"""Runs a test's body in network, mount and process namespaces of its own: nothing of it outlives the test."""

import ctypes
import functools
import os
import signal
import subprocess
import traceback
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import NoReturn, ParamSpec

import pytest

from nodeagent.components.relay import Relay, RelayChange
from nodeagent.config.options import RelayOptions
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, Listener
from nodeagent.model.objects import ObjectRef, ProxyVersion
from tests.root import needs_root

P = ParamSpec("P")

_CLONE_NEWNS, _CLONE_NEWPID, _CLONE_NEWNET, _PR_SET_PDEATHSIG = 0x20000, 0x20000000, 0x40000000, 1

RELAY, RELAY_2, RELAY_6 = "169.254.66.5", "169.254.66.6", "fd68:6169:7270::5"
SERVICE, SERVICE_6 = "10.96.0.10", "fd00:96::10"
NODE, NODE_6 = "192.0.2.10", "2001:db8::10"
POD, POD_6 = "10.244.1.7", "fd00:244::7"
INGRESS = ObjectRef("Service", "ingress-nginx", "ingress-nginx-controller")


def isolated(test: Callable[P, None]) -> Callable[P, None]:
    """A test whose body runs in a world with `lo` alone, the addresses above on it, and an empty /run."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _unshare_and_run(functools.partial(test, *args, **kwargs), writer)
        os.close(writer)
        try:
            with os.fdopen(reader) as pipe:
                told = pipe.read()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if told != "passed":
            pytest.fail(told or "the test's process died", pytrace=False)

    return needs_root(run)


def listener(
    bind: str = RELAY,
    port: int = 443,
    server: str = SERVICE,
    proxy: ProxyVersion | None = "v1",
    node: str | None = None,
) -> Listener:
    """A listener for the ingress controller whose server has the same port."""
    return Listener(
        bind=Endpoint(ip_address(bind), port),
        server=Endpoint(ip_address(server), port),
        proxy=proxy,
        load_balancer=INGRESS,
        node_address=ip_address(node) if node else None,
    )


def relay_component(*, launch: bool = True, drain_seconds: float = 5.0) -> Relay:
    """A relay on /run/nodeagent, which no other program uses here."""
    return Relay(RelayOptions(launch=launch), drain_seconds)


def difference(relay: Relay, listeners: Iterable[Listener]) -> RelayChange:
    """What leads to these listeners, as read now."""
    return relay.diff(relay.read(), Desired(listeners=tuple(listeners)))


def apply(relay: Relay, listeners: Iterable[Listener]) -> None:
    """Make HAProxy serve exactly these, as a pass does."""
    wanted = tuple(listeners)
    relay.grow(difference(relay, wanted))
    relay.shrink(difference(relay, wanted))


def clean_up(relay: Relay) -> None:
    """Leave nothing of the relay."""
    relay.shrink(difference(relay, ()))
    relay.leave()


def _unshare_and_run(body: Callable[[], None], writer: int) -> NoReturn:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWNET):
        os.write(writer, f"unshare: {os.strerror(ctypes.get_errno())}".encode())
        os._exit(1)
    first = os.fork()
    if first:
        os.close(writer)
        os.waitpid(first, 0)
        os._exit(0)
    # The first process of the new namespace: with it all others end.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    told = "passed"
    try:
        _furnish()
        body()
    except BaseException:  # noqa: BLE001 - whatever it was, the test's own process reports it
        told = traceback.format_exc()
    os.write(writer, told[:60000].encode())
    os._exit(0)


def _furnish() -> None:
    addresses = (RELAY, RELAY_2, RELAY_6, SERVICE, SERVICE_6, NODE, NODE_6, POD, POD_6)
    commands = [
        "mount --make-rprivate /",
        "mount -t proc proc /proc",
        "mount -t tmpfs -o mode=0755 tmpfs /run",
        "ip link set lo up",
        *(f"ip address add {each}/{128 if ':' in each else 32} dev lo" for each in addresses),
    ]
    for command in commands:
        subprocess.run(command.split(), check=True)
