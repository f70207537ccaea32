import dataclasses
import shutil
import string
import subprocess
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.components.relay import activation, haproxy_config
from nodeagent.config.options import RelayOptions
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Listener
from nodeagent.model.objects import ObjectRef
from tests.cases import cases_of
from tests.components.relay.node import INGRESS, NODE, NODE_6, RELAY, RELAY_6, SERVICE_6, listener

_labels = st.text("abz019", min_size=1, max_size=6) | st.sampled_from(["a-b", "a.b", "x" * 63])
_ports = st.integers(1, 65535)
_v4 = st.integers(0, 2**32 - 1).map(IPv4Address)
_v6 = st.integers(0, 2**128 - 1).map(IPv6Address)


@st.composite
def _listeners(draw: st.DrawFn) -> Listener:
    family: st.SearchStrategy[IPAddress] = draw(st.sampled_from([_v4, _v6]))
    return Listener(
        bind=Endpoint(draw(family), draw(_ports)),
        server=Endpoint(draw(st.one_of(_v4, _v6)), draw(_ports)),
        proxy=draw(st.sampled_from(["v1", "v2", None])),
        load_balancer=ObjectRef("Service", draw(_labels), draw(_labels)),
        node_address=draw(st.one_of(st.none(), family)),
    )


@given(st.lists(_listeners(), max_size=8, unique_by=lambda each: each.bind))
def test_what_was_rendered_is_read_back_exactly(listeners: list[Listener]) -> None:
    text = haproxy_config.render(listeners)
    assert haproxy_config.parse(text) == tuple(sorted(listeners, key=lambda each: each.bind.sort_key()))
    assert text == haproxy_config.render(reversed(listeners))


@given(st.text(string.printable + "\n_[]{}()", max_size=300))
def test_any_other_text_is_either_without_listeners_or_refused(text: str) -> None:
    try:
        found = haproxy_config.parse(text)
    except ValueError:
        return
    assert found == ()


def test_the_description_is_the_digest_of_all_the_rest() -> None:
    text = haproxy_config.render([listener()])
    assert f"description nodeagent-{haproxy_config.digest(text)}\n" in text
    assert haproxy_config.digest(text.replace("3600s", "7200s")) != haproxy_config.digest(text)


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs the haproxy program")
@pytest.mark.parametrize("count", [0, 1, 200])
def test_haproxy_accepts_it(count: int, tmp_path: Path) -> None:
    listeners = [
        each
        for port in range(1, count + 1)
        for each in (
            listener(RELAY, port, node=NODE),
            listener(RELAY_6, port, SERVICE_6, proxy="v2", node=NODE_6),
        )
    ]
    text = haproxy_config.render(listeners)
    activation.check(text, "haproxy")
    file = tmp_path / "haproxy.cfg"
    file.write_text(text)
    # Not even a warning, which -dW makes an error.
    subprocess.run(["haproxy", "-dW", "-c", "-q", "-f", str(file)], check=True)


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs the haproxy program")
def test_a_refusal_holds_haproxys_words() -> None:
    text = haproxy_config.render([]) + "\nlisten broken\n    bind nowhere:x\n"
    with pytest.raises(ApplyError, match=r"rejects the relay's configuration(?s:.*)nowhere:x"):
        activation.check(text, "haproxy")


def _at(address: str, port: int) -> Listener:
    return dataclasses.replace(listener(), bind=Endpoint(ip_address(address), port))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ([listener(owner=ObjectRef("Gateway", "a", "b"))], "DNS labels"),
        ([listener(owner=ObjectRef("Service", "a_b", "c"))], "DNS labels"),
        ([listener(owner=ObjectRef("Service", "a", "b\n  bind :1"))], "DNS labels"),
        ([_at(RELAY, 0)], "0 is not a TCP port"),
        ([_at(RELAY, 65536)], "65536 is not a TCP port"),
        ([_at("fe80::1%eth0", 1)], "bound to an interface"),
        ([listener(node=NODE_6)], "other family"),
        ([listener(), listener(owner=ObjectRef("Service", "a", "b"))], "already listens there"),
    ],
)
def test_what_would_change_the_meaning_of_the_file_is_refused(bad: list[Listener], why: str) -> None:
    with pytest.raises(ApplyError, match=why):
        haproxy_config.render(bad)


def test_a_manually_changed_section_is_named() -> None:
    text = haproxy_config.render([listener()]).replace("send-proxy check", "check")
    with pytest.raises(ValueError, match=f"listen {INGRESS.namespace}_{INGRESS.name}_169"):
        haproxy_config.parse(text)


@pytest.mark.parametrize(
    ("processors", "threads"), [(1, 1), (2, 1), (4, 1), (7, 1), (8, 2), (16, 4), (64, 4), (256, 4)]
)
def test_threads_are_a_quarter_of_the_processors_and_few(processors: int, threads: int) -> None:
    options = haproxy_config.with_threads(RelayOptions(), processors)
    assert f"    nbthread {threads}\n" in haproxy_config.render([listener()], options)
    options = haproxy_config.with_threads(RelayOptions(threads=7), processors)
    assert "    nbthread 7\n" in haproxy_config.render([listener()], options)


@pytest.mark.parametrize(
    ("namespaces", "each", "reloads", "pace", "interval"), cases_of(__file__, "many.yaml")
)
def test_the_more_listeners_the_fewer_reloads_a_process_outlives_and_the_rarer_the_checks(
    namespaces: int, each: int, reloads: int, pace: int, interval: int
) -> None:
    owners = [ObjectRef("Service", f"n{number}", "lb") for number in range(namespaces)]
    found = [listener(RELAY, 1 + at, owner=owners[at % namespaces]) for at in range(namespaces * each)]
    text = haproxy_config.render(found)
    assert f"    mworker-max-reloads {reloads}\n" in text
    assert text.count(f" inter {interval}s fastinter {pace}s downinter {pace}s ") == len(found)
