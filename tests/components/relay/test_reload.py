import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nodeagent.components.relay import Relay, component, haproxy_config
from nodeagent.components.relay.haproxy_sockets import Unreachable, read_processes
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, Listener
from tests.components.relay.backend import Download, backend, connect, who
from tests.components.relay.namespace import (
    RELAY,
    RELAY_2,
    apply,
    difference,
    isolated,
    listener,
    relay_component,
)

CONFIG = Path("/run/nodeagent/haproxy.cfg")
A, B = listener(RELAY), listener(RELAY_2)


@contextmanager
def _serving(*listeners: Listener) -> Iterator[Relay]:
    relays = relay_component()
    with backend(listener().server):
        apply(relays, listeners)
        yield relays


class _Load:
    """New connections without pause, from some threads, each asked and answered."""

    def __init__(self, endpoint: Endpoint, at_most: int) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self._endpoint = endpoint
        self._at_most = at_most
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._reached: dict[int, threading.Event] = {}
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]
        for thread in self._threads:
            thread.start()

    def wait_for_more(self, count: int) -> None:
        """Returns when that many more connections were tried (or the bound is reached)."""
        with self._lock:
            target = min(self.answered + len(self.failures) + count, self._at_most)
            event = self._reached.setdefault(target, threading.Event())
        assert event.wait(20)

    def finish(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            failure = ""
            try:
                answer = who(self._endpoint)
                failure = "" if answer == f"v1 {self._endpoint.address}" else f"answer {answer!r}"
            except OSError as error:
                failure = repr(error)
            with self._lock:
                if failure:
                    self.failures.append(failure)
                else:
                    self.answered += 1
                tried = self.answered + len(self.failures)
                for target, event in self._reached.items():
                    if tried >= target:
                        event.set()
                if tried >= self._at_most:
                    self._over.set()


@isolated
def test_a_master_that_executes_itself_does_not_count_as_ended() -> None:
    with _serving(A) as relay:
        for wanted in ((A, B), (A,), (A, B), (A,), (A, B)):
            relay.grow(difference(relay, wanted))
            assert relay.read().running
            relay.shrink(difference(relay, wanted))
            assert relay.read().running
        for wanted in ((A,), (A, B)) * 5:
            grown = relay.grow(difference(relay, wanted))
            # The old worker, which does not have all of them, may still answer.
            assert relay.ready(wanted) == {each.bind for each in wanted}
            relay.shrink(relay.diff(grown, Desired(listeners=wanted)))
            # As other commands and the watcher do, who know nothing of the reload.
            assert not isinstance(read_processes(CONFIG.parent / "master.sock", 5), Unreachable)


@isolated
def test_reloads_under_load_fail_no_connection_and_cut_no_download() -> None:
    with _serving(A) as relays:
        downloads = [Download(A.bind, 48 << 20) for _ in range(5)]
        load = _Load(A.bind, at_most=20_000)
        for port in range(1001, 1007):
            load.wait_for_more(400)
            for download in downloads:
                assert download.read(2 << 20) == 2 << 20
            apply(relays, [A, *(listener(port=each) for each in range(1001, port + 1))])
        load.wait_for_more(400)
        load.finish()
        assert load.failures == []
        assert load.answered >= 2800
        assert all(download.whole() for download in downloads)


@isolated
def test_a_connection_through_a_removed_listener_goes_on() -> None:
    with _serving(A, B) as relays, connect(B.bind) as connection, connection.makefile("rw") as stream:
        stream.write("echo\nbefore\n")
        stream.flush()
        assert stream.readline() == "before\n"
        apply(relays, [A])
        with pytest.raises(ConnectionRefusedError):
            connect(B.bind)
        stream.write("after\n")
        stream.flush()
        assert stream.readline() == "after\n"
        assert relays.ready([A, B]) == {A.bind}


@isolated
def test_grow_then_shrink_moves_a_listener_without_a_gap() -> None:
    with _serving(A) as relays:
        apply(relays, [*relays.read().listeners, B])
        assert relays.ready([A, B]) == {A.bind, B.bind}
        apply(relays, [B])
        assert relays.read().listeners == (B,)
        assert who(B.bind) == f"v1 {RELAY_2}"


@isolated
def test_an_address_that_the_node_lacks_is_named_and_the_old_relay_goes_on() -> None:
    with _serving(A) as relays:
        before = CONFIG.read_bytes()
        with pytest.raises(ApplyError, match=r"169\.254\.66\.99:443: Cannot assign requested address"):
            apply(relays, [A, listener("169.254.66.99")])
        assert CONFIG.read_bytes() == before
        assert not difference(relays, [A])
        assert who(A.bind) == f"v1 {RELAY}"
        apply(relays, [A, B])
        assert who(B.bind) == f"v1 {RELAY_2}"


@isolated
def test_a_configuration_that_haproxy_refuses_is_not_left_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with _serving(A) as relays:
        before = CONFIG.read_bytes()
        good = haproxy_config.render

        def render_badly(*args: object) -> str:
            return good(*args).replace("mode tcp", "mode carrier-pigeon")  # type: ignore[arg-type]

        monkeypatch.setattr(haproxy_config, "render", render_badly)
        with pytest.raises(ApplyError, match="carrier-pigeon"):
            relays.shrink(difference(relays, [A, B]))
        assert CONFIG.read_bytes() == before
        assert who(A.bind) == f"v1 {RELAY}"


@isolated
def test_a_crash_between_writing_and_reloading_heals(monkeypatch: pytest.MonkeyPatch) -> None:
    with _serving(A) as relays:
        with monkeypatch.context() as patched:
            patched.setattr(component, "reload_haproxy", _die)
            with pytest.raises(KeyboardInterrupt):
                apply(relays, [A, B])
        assert relays.read().listeners == (A, B)
        assert not relays.read().current
        change = difference(relays, [A, B])
        assert change.action == "reload"
        assert str(change) == "reload HAProxy: the process does not run the file's configuration"
        relays.shrink(change)
        assert relays.read().current
        assert who(B.bind) == f"v1 {RELAY_2}"


@isolated
def test_a_manually_changed_file_is_written_again() -> None:
    with _serving(A) as relays:
        CONFIG.write_text(CONFIG.read_text().replace("timeout client 3600s", "timeout client 1s"))
        change = difference(relays, [A])
        assert str(change) == "reload HAProxy: the file is not as nodeagent writes it"
        relays.shrink(change)
        assert "timeout client 3600s" in CONFIG.read_text()
        CONFIG.write_bytes(b"listen \xff what\n")
        assert "will be written again" in relays.read().notes[0]
        apply(relays, [A])
        assert relays.read().listeners == (A,)
        assert not difference(relays, [A])


def _die(*_: object) -> None:
    raise KeyboardInterrupt


@isolated
def test_reloads_leave_no_more_than_so_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a connection: a tenant can change a load balancer, and open one, as often as they like."""
    monkeypatch.setattr(haproxy_config, "_OLD_PROCESSES_MIB", 0)
    with _serving(A) as relays, ExitStack() as stack:
        streams = []
        for number in range(14):
            stream = stack.enter_context(stack.enter_context(connect(A.bind)).makefile("rw"))
            stream.write("echo\nbefore\n")
            stream.flush()
            assert stream.readline() == "before\n"
            streams.append(stream)
            apply(relays, [A, B] if number % 2 else [A])
        apply(relays, [A, listener(port=1001)])
        assert streams[0].readline() == ""
        streams[-1].write("after\n")
        streams[-1].flush()
        assert streams[-1].readline() == "after\n"
        found = read_processes(CONFIG.parent / "master.sock", 5)
        assert not isinstance(found, Unreachable)
        assert len(found.old_workers) <= 11
