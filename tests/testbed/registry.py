"""The image registry behind the ingress controller: Debian's docker-registry."""

from __future__ import annotations

import json
import shutil
from functools import cached_property
from typing import TYPE_CHECKING

from tests.testbed.addresses import bracketed
from tests.testbed.oci_image import Image, write_image

if TYPE_CHECKING:
    from pathlib import Path

    from tests.testbed.addresses import Address
    from tests.testbed.namespaces import Host
    from tests.testbed.processes import Process


class Registry:
    """docker-registry in a pod, plain HTTP, which starts with the first push: most worlds pull nothing.

    Args:
        host: The pod.
        directory: For its configuration and storage; made here.
        address: Where it listens.
        port: The port there.
        name: The name by which the ingress controller serves it.
    """

    def __init__(self, host: Host, directory: Path, address: Address, port: int, name: str) -> None:
        directory.mkdir()
        self.host = host
        self._directory = directory
        self._port = port
        self._name = name
        self._configuration = directory / "config.yml"
        # JSON is YAML, and quotes paths right.
        self._configuration.write_text(
            json.dumps(registry_configuration(directory, address, port)), encoding="ascii"
        )

    @cached_property
    def process(self) -> Process:
        """The running registry, which listens."""
        started = self.host.popen(["docker-registry", "serve", self._configuration])
        self.host.await_port(self._port, started)
        return started

    def push(self, repository: str, size_mib: int) -> Image:
        """Make an image and push it, directly and not by way of the ingress controller.

        Args:
            repository: What to call it.
            size_mib: The size of its one layer.

        Returns:
            The image, by the name that the world pulls it by.
        """
        self.process.check_running()
        layout = self._directory / f"layout-{repository}"
        try:
            layer = write_image(layout, size_mib)
            self.host.run(
                [
                    *("skopeo", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false"),
                    f"oci:{layout}:latest",
                    # By the host's name: a reference takes no IPv6 address.
                    f"docker://{self.host.name}:{self._port}/{repository}:latest",
                ],
                timeout=60,
            )
        finally:
            shutil.rmtree(layout, ignore_errors=True)
        return Image(f"{self._name}/{repository}:latest", layer)


def registry_configuration(directory: Path, address: Address, port: int) -> dict[str, object]:
    """Return the registry's configuration: plain HTTP on that address, and its files in the directory."""
    return {
        "version": "0.1",
        "log": {"level": "info"},
        "storage": {"filesystem": {"rootdirectory": str(directory / "storage")}},
        "http": {"addr": f"{bracketed(address)}:{port}", "relativeurls": True},
    }
