"""The table `inet nodeagent` for the moment in which one backend's rules go and the other's come. PURE.

It redirects nothing, and holds back the first packet (SYN) of every connection that is to be redirected: TCP
sends it again after a second, and by then the other backend's rules stand. So no connection is cut, though
never two backends redirect at once. The addresses held expire by themselves: if the agent dies just then, the
node goes on after some seconds, and the next pass finds a table that is not as it should be.
"""

from nodeagent.components.dnat.nft_script import (
    FAMILIES,
    TABLE,
    add_ranges,
    guard_chain,
    pods_name,
    protocol_name,
    sets_of_ranges,
)
from nodeagent.model.addresses import Family
from nodeagent.model.desired import DnatRules

HOLD_SECONDS = 5
"""Many times what the change takes, and less than the time after which a person or a probe gives up."""

_PRIORITY = -150  # NF_IP_PRI_MANGLE: before every translation, ours and kube-proxy's


def hold(desired: DnatRules) -> str:
    """The text that puts the holding table in place of whatever stands under its name, in one transaction.

    Args:
        desired: What is about to stand, as `delta.normalised` returns it. Its guard stands meanwhile.
    """
    sets = "".join(_held_set(family) + sets_of_ranges(family) for family in FAMILIES)
    chains = _chain("output", from_pods=False) + _chain("prerouting", from_pods=True) + guard_chain()
    elements = "".join(
        f"add element inet {TABLE} {_held(redirect.match.address.version)} "
        f"{{ {redirect.match.address} . {redirect.match.port} timeout {HOLD_SECONDS}s }}\n"
        for redirect in desired.redirects
    )
    head = f"add table inet {TABLE}\ndelete table inet {TABLE}\n"
    return head + f"table inet {TABLE} {{\n{sets}{chains}}}\n" + elements + add_ranges(desired)


def _held(family: Family) -> str:
    return f"held{family}"


def _held_set(family: Family) -> str:
    return f"\tset {_held(family)} {{\n\t\ttype ipv{family}_addr . inet_service\n\t\tflags timeout\n\t}}\n"


def _chain(hook: str, *, from_pods: bool) -> str:
    rules = "".join(_rule(family, from_pods=from_pods) for family in FAMILIES)
    head = f"type filter hook {hook} priority {_PRIORITY}; policy accept;"
    return f"\tchain hold_{hook} {{\n\t\t{head}\n{rules}\t}}\n"


def _rule(family: Family, *, from_pods: bool) -> str:
    protocol = protocol_name(family)
    source = f"{protocol} saddr @{pods_name(family)} " if from_pods else ""
    return f"\t\ttcp flags & (syn | ack) == syn {source}{protocol} daddr . tcp dport @{_held(family)} drop\n"
