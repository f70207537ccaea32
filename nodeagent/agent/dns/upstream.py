"""Asking the upstream servers that a configuration means, once each name or until an answer is known."""

from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from nodeagent.agent.dns.verifier import Ask, DnsVerifier
from nodeagent.config.options import HostsOptions
from nodeagent.model.desired import DnsQuestion
from nodeagent.model.dns import DnsAnswer
from nodeagent.sources.node.name_resolution import find_upstreams

if TYPE_CHECKING:
    from nodeagent.sources.dns import Resolver

_ONCE_SECONDS: Final = 10.0
_ONCE_PER_SECOND: Final = 200.0


def ask_upstream(options: HostsOptions) -> Ask:
    """The way to ask for one name; which servers are to be asked is looked up for each."""

    @cache
    def resolver() -> "Resolver":
        # dnspython takes 0.07 s to import and memory to hold: who asks nothing pays nothing.
        from nodeagent.sources.dns import Resolver  # noqa: PLC0415

        return Resolver(partial(find_upstreams, options))

    return lambda name: resolver().ask(name)


def ask_once(wanted: Mapping[str, DnsQuestion], options: HostsOptions) -> Mapping[str, DnsAnswer]:
    """Asks for all of the names, for ten seconds at most; those left over are not in the answer.

    At up to 200 a second: a command is run seldom, and somebody waits for it.
    """
    prover = DnsVerifier(
        ask_upstream(options), options.dns_recheck_seconds, first_per_second=_ONCE_PER_SECOND
    )
    try:
        prover.want(wanted)
        prover.await_answers(_ONCE_SECONDS)
        return prover.answers()
    finally:
        prover.stop()
