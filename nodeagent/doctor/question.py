"""What the doctor is asked, with what is known before it looks."""

from dataclasses import dataclass

from nodeagent.agent.appliers import Appliers
from nodeagent.config.options import Config
from nodeagent.model.desired import Desired
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot
from nodeagent.model.running import ClusterAnswers
from nodeagent.sources.probes.registry_http import ImageReference


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and what is known already.

    Attributes:
        config: the configuration, the agent's own on a node.
        snapshot: the cluster's objects.
        facts: this machine's.
        desired: what shall stand on the node.
        appliers: which read what stands.
        cluster: what the API server answered.
        elsewhere: why this machine is not the node; empty where it is.
        host: the name to ask for; empty for what the plan knows.
        image: the image to rehearse the pull of; None for none.
    """

    config: Config
    snapshot: Snapshot
    facts: Facts
    desired: Desired
    appliers: Appliers
    cluster: ClusterAnswers
    elsewhere: str
    host: str
    image: ImageReference | None
