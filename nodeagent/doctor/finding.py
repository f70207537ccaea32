"""What the doctor finds: one value for each thing it looked at."""

from dataclasses import dataclass

from nodeagent.doctor.codes import Code, Verdict


@dataclass(frozen=True, slots=True)
class Finding:
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
    def verdict(self) -> Verdict:
        """The word for it."""
        return self.code.verdict

    @property
    def check(self) -> str:
        """The check's id."""
        return self.code.check
