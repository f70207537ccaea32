"""Requests for pages in every family that a world supports, and what they must return."""

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from tests.testbed.addresses import ANOTHER, SITE, Family, bracketed
from tests.testbed.http import CurlResult
from tests.testbed.namespaces import Host
from tests.testbed.world import World

NAMED = (f"http://{SITE}/", f"https://{SITE}/", f"https://{SITE}:8443/")
"""Pages whose names an Ingress has."""


def by_address(world: World) -> tuple[str, ...]:
    return tuple(f"http://{bracketed(address)}/" for address in world.service.load_balancer_ips)


def unnamed(world: World) -> tuple[str, ...]:
    """Pages that no Ingress names: they are covered by DNAT or not at all."""
    return (*by_address(world), f"https://{ANOTHER}:8443/")


def assert_served(world: World, host: Host, *urls: str) -> None:
    """Ask in each family: the page is served, and the ingress controller sees the host's own address."""
    for url, family, answer in _answers(world, host, urls):
        assert answer.ok, (url, family, answer)
        assert answer.body.startswith(f"client={world.address(host, family)} "), (url, family, answer)


def assert_cut(world: World, host: Host, *urls: str) -> None:
    """Ask in each family: the connection is rejected because the PROXY header is missing."""
    for url, family, answer in _answers(world, host, urls):
        assert answer.cut, (url, family, answer)


def _answers(world: World, host: Host, urls: tuple[str, ...]) -> Iterator[tuple[str, Family, CurlResult]]:
    asked = [(url, family) for url in urls for family in _families(world, url)]
    answers = host.curl_all([(url, [f"-{family}"]) for url, family in asked])
    for (url, family), answer in zip(asked, answers, strict=True):
        yield url, family, answer


def _families(world: World, url: str) -> tuple[Family, ...]:
    try:
        return (ip_address(urlsplit(url).hostname or "").version,)
    except ValueError:
        return world.families
