"""Traefik's rules: which hosts they ask for, whatever else is in them."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.sources.objects.kinds import hosts_in_rule
from tests.cases import cases_of


@pytest.mark.parametrize(("rule", "hosts"), cases_of(__file__, "cases.yaml")["rules"])
def test_hosts_of_a_rule(rule: str, hosts: list[str]) -> None:
    assert list(hosts_in_rule(rule)) == hosts


@given(st.text(alphabet='Host(`a.b`)"!&| ,\\', max_size=60))
@settings(deadline=None)
def test_no_text_is_too_odd(rule: str) -> None:
    for host in hosts_in_rule(rule):
        assert f"`{host}`" in rule or f'"{host}"' in rule


@pytest.mark.parametrize(
    "rule",
    [
        'Host("' + '\\"' * 500_000,
        "Host(" + "`" * 1_000_001,
        "(" * 500_000 + ")" * 500_000,
        'Host("' + "\\" * 1_000_001,
        "Host(" + '"a" ' * 250_000,
    ],
    ids=["quotes", "backticks", "parentheses", "backslashes", "texts"],
)
def test_a_rule_of_a_megabyte_costs_seconds_and_not_hours(rule: str) -> None:
    """Anyone can write one: the agent, which reads it, has one interpreter for everything."""
    started = time.process_time()
    hosts_in_rule(rule)
    assert time.process_time() - started < 10
