"""containerd on a node, with the node's own hosts file, resolver and network."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.testbed.namespaces import Host
from tests.testbed.processes import Process
from tests.testbed.registry import Blob, Image
from tests.testbed.waiting import wait_until

# Nothing is ever run from the images, or even unpacked: no CRI, nothing in /opt.
_DISABLED = ("io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt")
_PULL_SECONDS = 60.0


@dataclass(frozen=True)
class PullResult:
    """The result of a pull: `ok` only if all of the image arrived; else the reason in the runtime's words."""

    ok: bool
    reason: str


class ContainerRuntime:
    """containerd, which starts when it is first used: most worlds pull nothing."""

    def __init__(self, host: Host, directory: Path, ca: Path, registry: str) -> None:
        directory.mkdir()
        self.host = host
        self._root = directory / "root"
        self._hosts = host.etc / "containerd" / "certs.d"
        (self._hosts / registry).mkdir(parents=True)
        (self._hosts / registry / "hosts.toml").write_text(
            f'server = "https://{registry}"\n[host."https://{registry}"]\n  ca = "{ca}"\n', encoding="ascii"
        )
        disabled = ", ".join(f'"{plugin}"' for plugin in _DISABLED)
        self._configuration = directory / "config.toml"
        self._configuration.write_text(f"version = 2\ndisabled_plugins = [{disabled}]\n", encoding="ascii")
        # A socket's path is short of room: it goes into the node's own /run. The directory is there from the
        # beginning, because tests compare /run before and after a pull.
        self._socket = "/run/containerd/containerd.sock"
        Path(f"/proc/{host.pid}/root/run/containerd").mkdir(mode=0o711)

    @cached_property
    def process(self) -> Process:
        started = self.host.popen(
            [
                *("containerd", "--config", self._configuration, "--root", self._root),
                *("--state", "/run/containerd", "--address", self._socket),
            ]
        )
        started.await_that(lambda: "containerd successfully booted" in started.said(), "serving")
        return started

    def pull(self, image: Image) -> PullResult:
        """Have containerd get an image from the registry, as for a kubelet, and measure what arrived."""
        self.process.check_running()
        done = self.host.run(self.pull_command(image), timeout=_PULL_SECONDS, check=False)
        if done.returncode != 0:
            return PullResult(ok=False, reason=done.stderr)
        with self._blob(image).open("rb") as file:
            arrived = Blob(hashlib.file_digest(file, "sha256").hexdigest(), file.tell())
        if arrived != image.layer:
            return PullResult(ok=False, reason=f"expected {image.layer}, found {arrived}")
        return PullResult(ok=True, reason=done.stderr)

    def pull_command(self, image: Image) -> list[str | Path]:
        return self._ctr("content", "fetch", "--hosts-dir", "/etc/containerd/certs.d", image.reference)

    def remove(self, image: Image) -> None:
        self.host.run(self._ctr("images", "rm", "--sync", image.reference))
        wait_until(lambda: not self._blob(image).exists(), "containerd removing the layer")

    def _ctr(self, *args: str | Path) -> list[str | Path]:
        return ["ctr", "--address", self._socket, *args]

    def _blob(self, image: Image) -> Path:
        return self._root / "io.containerd.content.v1.content" / "blobs" / "sha256" / image.layer.digest
