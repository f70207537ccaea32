"""A machine to be provisioned: this one's filesystem, with every change in a layer that is thrown away.

The scripts run in it as on a virtual machine: as root, with the repository at /vagrant, in a network without
the internet. What they ask of systemd is noted for the next boot, and nothing is started.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from tests.testbed.namespaces import Host
    from tests.testbed.processes import Process

REPOSITORY = Path(__file__).parents[3]
_SCRIPTS = "/vagrant/tests/testbed/vagrant"
_SECONDS = 60.0
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    # systemctl: enable units, start none.
    "SYSTEMD_OFFLINE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
# $1 is a directory for the layer, $2 the repository. Below is only /, without what is mounted on it.
_MOUNTS = """
set -eu
mount -t tmpfs -o mode=0755 tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=0755 tmpfs run
mkdir -p vagrant
mount --bind "$2" vagrant
mount -o remount,bind,ro vagrant
"""


class MachineRoot:
    """The filesystem of one machine; removed with its host.

    Args:
        host: Whose network and processes it has.
        directory: An empty one, for the layer.
    """

    def __init__(self, host: Host, directory: Path) -> None:
        directory.mkdir()
        self.host = host
        self._root = directory / "root"
        host.run(["sh", "-c", _MOUNTS, "sh", directory, REPOSITORY])

    def provision(self, script: str, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one of the provisioning scripts; a failed one is an answer too.

        Args:
            script: Its file name.
            args: Its arguments.
            variables: What the Vagrantfile would set, and what overrides testbed.env.
        """
        return self.run([f"{_SCRIPTS}/{script}", *args], check=False, **variables)

    def run(
        self, command: Sequence[str], *, check: bool = True, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; see `Host.run`."""
        return self.host.run(self._inside(command, variables), check=check, stdin=stdin, timeout=_SECONDS)

    def start(self, command: Sequence[str], log: str) -> Process:
        """Start a program and leave it running."""
        return self.host.popen(self._inside(command, {}), log=log)

    def start_unit(self, name: str) -> Process:
        """Start what a unit's ExecStart says."""
        lines = self.read(f"/etc/systemd/system/{name}").splitlines()
        (command,) = (line.partition("=")[2] for line in lines if line.startswith("ExecStart="))
        return self.start(command.split(), name)

    def read(self, path: str) -> str:
        """Read a file."""
        return self.run(["cat", path]).stdout

    def write(self, path: str, content: str) -> None:
        """Write a file, and make its directory."""
        self.run(["sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1"', "sh", path], stdin=content)

    def changes(self) -> str:
        """List the files that differ from this machine's, logs apart, each with its digest."""
        listing = (
            "cd \"$1\" && find . -path ./var/log -prune -o -type f -print | sort | xargs -d '\\n' sha256sum"
        )
        return self.host.run(["sh", "-c", listing, "sh", self._root.parent / "upper"]).stdout

    def _inside(self, command: Sequence[str], variables: Mapping[str, str]) -> list[str | Path]:
        words = [f"{name}={value}" for name, value in {**_ENVIRONMENT, **variables}.items()]
        return ["chroot", self._root, "env", "--ignore-environment", "--chdir=/", *words, *command]
