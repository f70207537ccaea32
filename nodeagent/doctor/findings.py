"""What the doctor finds: one value for each thing it looked at; and all of them in one sentence. Pure."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from nodeagent.doctor.codes import CheckVerdict, Code


class Finding(Struct, frozen=True):
    """One check of one thing. The code settles the verdict: docs/doctor.md explains every code.

    Attributes:
        code: what was found; belongs to one check.
        subject: what was looked at, as a person would look it up.
        seen: the finding in a sentence.
        evidence: what was observed, a line each.
        remedy: what to do, a step each; the first is the best. Lines that begin with `$ ` are commands.
    """

    code: Code
    subject: str
    seen: str
    evidence: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()

    @property
    def verdict(self) -> CheckVerdict:
        """The word for it."""
        return self.code.verdict

    @property
    def check(self) -> str:
        """The check's id."""
        return self.code.check


Overall = Literal["healthy", "affected", "cannot-tell"]

_EXIT: dict[Overall, int] = {"healthy": 0, "affected": 2, "cannot-tell": 1}
# Without these nobody knows whether the node is affected; all else that can't be told leaves that as it is.
_DECISIVE = frozenset({Code.ShortCircuitedByObject, Code.LoadBalancerUnclear, Code.PathUnclear})
# What says most about a cause stands first in the sentence.
_LEADING = (Code.ShortCircuited, Code.IPModeIgnored)


class Summary(Struct, frozen=True):
    """The whole in a word, a sentence and an exit code: 0 healthy, 2 affected, 1 could not tell."""

    overall: Overall
    sentence: str

    @property
    def exit_code(self) -> int:
        """For the shell."""
        return _EXIT[self.overall]


def summarize(where: str, findings: Sequence[Finding]) -> Summary:
    """The sentence begins with `where` ("node node1", or "this cluster") and ends with the warnings.

    Warnings, and what could not be read without leaving the main question open, change nothing else.
    """
    affected = [finding for finding in findings if finding.verdict is CheckVerdict.AFFECTED]
    unknown = [finding for finding in findings if finding.code in _DECISIVE]
    overall: Overall
    if affected:
        overall, words = "affected", f" is affected and not fixed yet: {_affected(affected)}"
    elif unknown:
        overall, words = "cannot-tell", f": could not determine: {_first(unknown)}"
    else:
        overall, words = "healthy", f" {_healthy(findings)}"
    return Summary(overall, f"{where}{words}{_asides(findings)}")


def _asides(findings: Sequence[Finding]) -> str:
    warnings = [finding for finding in findings if finding.verdict is CheckVerdict.WARNING]
    unread = dict.fromkeys(
        finding.check
        for finding in findings
        if finding.verdict is CheckVerdict.CANNOT_TELL and finding.code not in {*_DECISIVE, Code.NotThisNode}
    )
    told = f"; {_count(len(warnings), 'warning')}: {_first(warnings)}" if warnings else ""
    return f"{told}; unknown: {', '.join(unread)}" if unread else told


def _first(findings: Sequence[Finding]) -> str:
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{findings[0].subject}: {findings[0].seen}{more}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"


def _affected(affected: Sequence[Finding]) -> str:
    leading = [finding for finding in affected if finding.code in _LEADING]
    # A load balancer in other trouble is told by its path, which says which trouble.
    rest = [finding for finding in affected if finding.code not in {*_LEADING, Code.Troubled}]
    causes = leading or rest or list(affected)
    first = causes[0]
    same = {finding.subject for finding in causes if finding.code is first.code} - {first.subject}
    also = f" (and {len(same)} more like it)" if same else ""
    return f"{first.subject}: {first.seen}{also}"


def _healthy(findings: Sequence[Finding]) -> str:
    codes = [finding.code for finding in findings]
    remedied = codes.count(Code.LoadBalancerRemedied)
    if remedied:
        what = "1 load balancer is" if remedied == 1 else f"{remedied} load balancers are"
        return f"is healthy: {what} short-circuited, and fixed by nodeagent"
    fine = [code for code in codes if code in {Code.IPModeProxy, Code.HostnameOnly, Code.Tolerated}]
    if fine:
        return "is not affected: its connections to PROXY load balancers work without a fix"
    if Code.NotProxy in codes or Code.NoAddress in codes or Code.Ignored in codes:
        return "is not affected: no load balancer with an address is known to send the PROXY header"
    return "is not affected: the cluster has no load balancer"
