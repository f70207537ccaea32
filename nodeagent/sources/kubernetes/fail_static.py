"""What fail static means for one kind of objects: what is known of it while the API server does not say.

One bad answer is not an answer: an API server that has just started denies requests until it has read its
roles, and lacks the kinds of CustomResourceDefinitions until it has read those. So a denial counts once it
has lasted, and so does the absence of a kind. While any kind is pending, a pass only adds
(`agent.convergence`), and CoreDNS' ConfigMap is not written.
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.sources.kubernetes.errors import ForbiddenError, NotFoundError


class KindState(StrEnum):
    """What `state_of` says of one kind."""

    KNOWN = "known"
    PENDING = "pending"
    ABSENT = "absent"
    DENIED = "denied"


class Lasting(Struct, frozen=True):
    """From when on an answer that takes something away is believed.

    A denial after so many refusals in a row, over at least so many seconds; the absence of a kind if the
    server has said each time for so many seconds that there is none.
    """

    denials: int = 5
    denied: float = 60.0
    absent: float = 5.0


class Answers(Struct, frozen=True):
    """The last answers to one question, as far as they were all the same: how many, and from when to when.

    `error` is what failed, None for a success. Times are monotonic seconds.
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
    """Return what is known of a kind, which may have been listed once.

    Its own `collection` has answered, unless it was not requested; and so has the `discovery` of its group,
    unless every server has the kind.
    """
    asked = [answers for answers in (collection, discovery) if answers is not None]
    if asked and all(answers.absent for answers in asked):
        return KindState.ABSENT  # Each that was asked has said so for a while: its objects are gone with it.
    if any(answers.denied for answers in asked):
        return KindState.DENIED  # What it has now is unknown: what was known stays, and a note says so.
    if known:
        return KindState.KNOWN  # However old it is, and whatever fails now: an error is not news.
    return KindState.PENDING  # Nothing was ever read: nothing is removed for the lack of it.
