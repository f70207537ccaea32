"""What fail static means for one kind of objects: what is known of it while the API server does not say.

A kind that was read once is known as it was last seen, however long ago. One bad answer is not an answer: an
API server that has just started denies requests until it has read its roles, and does not have the kinds of
CustomResourceDefinitions until it has read those. So a denial counts once it has lasted, and so does the
absence of a kind. Until then, a kind that was never read is pending, and while any is, a pass only adds
(`agent.convergence`), and CoreDNS' ConfigMap is not written.
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.sources.kubernetes.errors import ForbiddenError, NotFoundError


class KindState(StrEnum):
    """What is known of one kind."""

    KNOWN = "known"
    """Its objects, as they were last seen."""
    PENDING = "pending"
    """It was never read since the start."""
    ABSENT = "absent"
    """This server has no such kind."""
    DENIED = "denied"
    """RBAC denies it; what was known before stays."""


class Lasting(Struct, frozen=True):
    """From when on an answer that takes something away is believed.

    Attributes:
        denials: so many refusals in a row,
        denied: over at least so many seconds.
        absent: for so many seconds, the server has said each time that there is no such kind.
    """

    denials: int = 5
    denied: float = 60.0
    absent: float = 5.0


class Answers(Struct, frozen=True):
    """The last answers to one question, as far as they were all the same.

    Attributes:
        lasting: from when on they are believed.
        error: what failed; None for a success.
        times: how many there were in a row.
        first: when the first of them came (monotonic seconds).
        latest: when the last of them came.
    """

    lasting: Lasting = Lasting()
    error: Exception | None = None
    times: int = 0
    first: float = 0.0
    latest: float = 0.0

    def then(self, error: Exception | None, now: float) -> "Answers":
        """Return them after one more answer; a failure that says nothing leaves what is believed."""
        says_nothing = error is not None and not isinstance(error, DECIDING)
        if says_nothing and (self.denied or self.absent):
            return self
        if self.times and type(error) is type(self.error):
            return replace(self, error=error, times=self.times + 1, latest=now)
        return Answers(self.lasting, error, 1, now, now)

    @property
    def denied(self) -> bool:
        """Whether they deny it, for good as far as can be seen."""
        often = self.times >= self.lasting.denials and self.latest - self.first >= self.lasting.denied
        return often and isinstance(self.error, ForbiddenError)

    @property
    def missing(self) -> bool:
        """Whether the last one says that there is no such kind."""
        return isinstance(self.error, NotFoundError)

    @property
    def absent(self) -> bool:
        """Whether they say so for long enough."""
        return self.missing and self.latest - self.first >= self.lasting.absent


DECIDING = (ForbiddenError, NotFoundError)
"""What says something of a kind, if it lasts. Other failures say nothing."""


def state_of(collection: Answers | None, discovery: Answers | None, *, known: bool) -> KindState:
    """Return what is known of a kind. Pure.

    Args:
        collection: What its own collection answered; None if that was not requested.
        discovery: What the discovery of its group answered; None for a kind that every server has.
        known: Whether it was listed once.
    """
    asked = [answers for answers in (collection, discovery) if answers is not None]
    if asked and all(answers.absent for answers in asked):
        return KindState.ABSENT  # Each that was asked has said so for a while: its objects are gone with it.
    if any(answers.denied for answers in asked):
        return KindState.DENIED  # What it has now is unknown: what was known stays, and a note says so.
    if known:
        return KindState.KNOWN  # However old it is, and whatever fails now: an error is not news.
    return KindState.PENDING  # Nothing was ever read: nothing is removed for the lack of it.
