"""A container of the image that runs one command and ends, as `docker run --rm` makes it."""

from collections.abc import Sequence
from itertools import count

from tests.daemonset.image_root import ImageRoot
from tests.daemonset.pods import Container, Mount
from tests.testbed.agent import Answer
from tests.testbed.world import World

_SECONDS = 60.0
_numbers = count(1)


class OneOff:
    """Runs commands on node2, each in a container of its own with a root that can't be written.

    An agent in the image may run on node1.

    Args:
        world: The world.
        image: What the root is.
    """

    def __init__(self, world: World, image: ImageRoot) -> None:
        self._world = world
        self._image = image

    def __call__(
        self,
        command: Sequence[str],
        *,
        user: int,
        capabilities: Sequence[str] = (),
        mounts: Sequence[Mount] = (),
    ) -> Answer:
        """Run one.

        Args:
            command: The command.
            user: Whose it is.
            capabilities: All that it has.
            mounts: Its volumes.

        Returns:
            Its exit code and what it said (stdout and stderr as one).
        """
        context = {
            "runAsUser": user,
            "runAsGroup": user,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": list(capabilities)},
        }
        container = Container(
            self._world.node2,
            {"name": "once", "command": command, "securityContext": context},
            self._image.path,
            environment=self._image.environment,
            mounts=mounts,
            own=self._world.tmp / f"once{next(_numbers)}",
        )
        exit_code = container.process.wait(seconds=_SECONDS)
        return Answer(exit_code, container.log(), "")
