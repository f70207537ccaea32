"""What a Corefile answers: asked of a real CoreDNS where there is one, else of a model of two of its plugins.

The model knows `rewrite name` and `template` as their documentation has them, in CoreDNS's fixed order
(plugin.cfg: rewrite before template); everything else counts as "goes on to the next plugin".
"""

import re
from dataclasses import dataclass

from nodeagent.coredns.corefile.parsing import Directive, parse

PASSED_ON = "passed on"
NO_RECORDS = "no records"


@dataclass(frozen=True)
class Question:
    """A name without a final dot, and a record type."""

    name: str
    kind: str = "A"


def model_answer(text: str, question: Question) -> str:
    """What the root server block says: addresses, NO_RECORDS, `-> NAME` for a rewrite, or PASSED_ON."""
    corefile = parse(text)
    plugins = list(corefile.plugins(corefile.roots[0]))
    name = f"{question.name}."
    for rewrite in (plugin for plugin in plugins if plugin.name == "rewrite"):
        action, field, how, before, after = rewrite.arguments
        assert (action, field, how) == ("stop", "name", "exact")
        if f"{before}." == name:
            return f"-> {after}"
    for template in (plugin for plugin in plugins if plugin.name == "template"):
        answer = _by_template(template, name, question.kind)
        if answer is not None:
            return answer
    return PASSED_ON


def _by_template(template: Directive, name: str, kind: str) -> str | None:
    head, *body = [[token.text for token in line] for line in template.lines()]
    _, dns_class, of_kind, *zones = head
    assert dns_class == "IN"
    if of_kind != kind or not any(name.endswith(f".{zone}.") or name == f"{zone}." for zone in zones):
        return None
    assert ["fallthrough"] in body, "without it, CoreDNS says NXDOMAIN to every other name"
    if not any(re.search(line[1], name) for line in body if line[0] == "match"):
        return None
    answers = [line[1].replace("{{ .Name }}", name).split() for line in body if line[0] == "answer"]
    if not answers:
        (soa,) = [line[1].replace("{{ .Name }}", name).split() for line in body if line[0] == "authority"]
        assert soa[:4] == [name, "30", "IN", "SOA"]
        assert len(soa) == 11
        return NO_RECORDS
    assert all(answer[:4] == [name, "30", "IN", kind] for answer in answers)
    return " ".join(answer[4] for answer in answers)
