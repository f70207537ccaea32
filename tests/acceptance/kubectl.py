"""kubectl, with a kubeconfig, as the acceptance steps use it."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from tests.acceptance.node_shell import PATIENCE
from tests.testbed.errors import WorldError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.daemonset.kustomize import Object


class Kubectl:
    """One cluster; may be used by several threads.

    Args:
        kubeconfig: How it is reached, with rights to make and delete all that is installed.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def __call__(self, *words: str, given: Object | None = None, seconds: float = 60.0) -> str:
        """Run kubectl with these arguments, `given` on its standard input; returns what it printed.

        Raises:
            WorldError: The server can't be reached or refuses, or it took too long.
        """
        command = ["kubectl", "--kubeconfig", str(self._kubeconfig), *words]
        try:
            done = subprocess.run(
                command,
                input=json.dumps(given) if given else "",
                capture_output=True,
                text=True,
                timeout=seconds * PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WorldError(f"kubectl {' '.join(words)}: {error}") from error
        if done.returncode:
            raise WorldError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout
