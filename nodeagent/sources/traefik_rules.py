"""Pure: the hosts that a rule of Traefik's names: Host(`a`) || Host(`b`) && PathPrefix(`/`).

The syntax is that of Traefik v2 and v3 ("Routers: Rule"): matchers with texts in backticks or double quotes,
`!`, `&&`, `||`, parentheses. HostRegexp is passed over: it names no host, and DNAT serves it all the same.
"""

import re

_TOKENS = re.compile(r'`[^`]*`|"(?:[^"\\]|\\.)*"|[A-Za-z]+|[!()]')
_HOST_MATCHERS = frozenset({"host", "hostheader", "hostsni"})


def hosts_in_rule(rule: str) -> tuple[str, ...]:
    """The hosts of all Host and HostSNI matchers that are not negated, each once."""
    found: dict[str, None] = {}
    matcher = ""
    negating = False
    within = [("", False)]
    for part in _TOKENS.findall(rule):
        if part == "!":
            negating = not negating
        elif part == "(":
            within.append((matcher, within[-1][1] is not negating))
            matcher, negating = "", False
        elif part == ")":
            within = within[:-1] or [("", False)]
        elif part[0] in '`"':
            name, negated = within[-1]
            if name in _HOST_MATCHERS and not negated:
                found[part[1:-1]] = None
        else:
            matcher = part.lower()
    found.pop("*", None)  # HostSNI(`*`): whatever else arrives
    return tuple(found)
