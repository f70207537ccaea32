"""What a Corefile answers: asked of a real CoreDNS if there is one, else of a model of four of its plugins.

The model knows `rewrite name`, `template` and `hosts` as they are documented, and that `forward` ends the
search. They run in CoreDNS's fixed order (plugin.cfg), whatever their order in the Corefile; several of one
plugin run in the Corefile's order. Every other plugin counts as "goes on to the next plugin".
"""

import re
from collections.abc import Callable
from ipaddress import ip_address

from nodeagent.coredns.parsing import Directive, parse

PASSED_ON = "passed on"
NO_RECORDS = "no records"


def model_answer(text: str, asked: str, kind: str = "A") -> str:
    """Ask the first root server block for a name, without a final dot, and a record type.

    The answer: addresses, NO_RECORDS, a response code by its name, `-> NAME` for a rewrite, or PASSED_ON.
    """
    corefile = parse(text)
    plugins = list(corefile.plugins(corefile.roots[0]))
    for name, ask in _IN_ORDER.items():
        for plugin in plugins:
            answer = ask(plugin, f"{asked}.", kind) if plugin.name == name else None
            if answer is not None:
                return answer
    return PASSED_ON


def _lines(plugin: Directive) -> tuple[list[str], list[list[str]]]:
    head, *body = [[token.text for token in line] for line in plugin.lines()]
    return head[1:], body


def _by_rewrite(rewrite: Directive, name: str, _: str) -> str | None:
    action, field, how, before, after = rewrite.arguments
    assert (action, field, how) == ("stop", "name", "exact")
    return f"-> {after}" if f"{before}." == name else None


def _by_template(template: Directive, name: str, kind: str) -> str | None:
    (dns_class, of_kind, *zones), body = _lines(template)
    assert dns_class == "IN"
    suffixes = tuple(f".{zone}." if zone != "." else "." for zone in zones)
    if of_kind not in {kind, "ANY"} or not f".{name}".endswith(suffixes):
        return None
    patterns = [line[1] for line in body if line[0] == "match"]
    assert not patterns or ["fallthrough"] in body, "without it, CoreDNS says NXDOMAIN to every other name"
    if patterns and not any(re.search(pattern, name) for pattern in patterns):
        return None
    codes = [line[1] for line in body if line[0] == "rcode"]
    if codes:
        return codes[0]
    answers = [line[1].replace("{{ .Name }}", name).split() for line in body if line[0] == "answer"]
    if not answers:
        (soa,) = [line[1].replace("{{ .Name }}", name).split() for line in body if line[0] == "authority"]
        assert soa[:4] == [name, "30", "IN", "SOA"]
        assert len(soa) == 11
        return NO_RECORDS
    assert all(answer[:4] == [name, "30", "IN", kind] for answer in answers)
    return " ".join(answer[4] for answer in answers)


def _by_hosts(hosts: Directive, name: str, kind: str) -> str | None:
    """Inline lines alone: the tests' Corefiles name no file."""
    _, body = _lines(hosts)
    found = [ip_address(line[0]) for line in body if name.removesuffix(".") in line[1:]]
    if not found:
        assert ["fallthrough"] in body, "without it, CoreDNS says NXDOMAIN to every other name"
        return None
    return " ".join(str(one) for one in found if kind == {4: "A", 6: "AAAA"}[one.version]) or NO_RECORDS


def _by_forward(*_: object) -> str:
    return PASSED_ON


_IN_ORDER: dict[str, Callable[[Directive, str, str], str | None]] = {
    "rewrite": _by_rewrite,
    "template": _by_template,
    "hosts": _by_hosts,
    "forward": _by_forward,
}
