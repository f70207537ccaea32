"""A pod of the DaemonSet on a node of the testbed, as kubelet and container runtime would make it.

Everything is taken from the pod's spec; a feature that is not known here is an error. A container gets a root
and namespaces of its own, and the node's network. Not imitated: seccomp, AppArmor and SELinux profiles, and
limits of memory and processor (docs/development.md).
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Literal, TypeAlias

from tests.daemonset.kustomize import Object
from tests.testbed.agent import Answer
from tests.testbed.errors import WorldError
from tests.testbed.namespaces import Host
from tests.testbed.processes import Process, children
from tests.testbed.waiting import wait_until

_SETUP = Path(__file__).with_name("container.sh").read_text("utf-8")
_NAMESPACES = (
    *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private"),
    *("--", "sh", "-c", _SETUP, "sh"),
)
_numbers = count(1)
Mount: TypeAlias = tuple[str | Path, str, Literal["ro", "rw"]]
"""A file or directory of the node, and where and how a container sees it."""


def privileges(spec: Object) -> list[str]:
    """Return setpriv's command line, which runs the rest of it with a container's user and capabilities."""
    context = dict(spec["securityContext"])
    capabilities = context.pop("capabilities")
    if capabilities["drop"] != ["ALL"] or context.get("privileged"):
        raise WorldError(f"{spec['name']}: capabilities that are not all dropped first are not imitated")
    added = "".join(f",+{name.lower()}" for name in capabilities.get("add", []))
    return [
        *("setpriv", f"--reuid={context['runAsUser']}", f"--regid={context['runAsGroup']}", "--clear-groups"),
        *(f"--bounding-set=-all{added}", "--inh-caps=-all", "--ambient-caps=-all"),
        *([] if context["allowPrivilegeEscalation"] else ["--no-new-privs"]),
        "--",
    ]


class Container:
    """One container, which begins to start with this object: all of its variables, its volumes.

    The image is the root of a filesystem, `own` a directory of the container's own, which need not exist.
    """

    def __init__(  # noqa: PLR0913 - what a runtime needs for a container
        self,
        node: Host,
        spec: Object,
        image: Path,
        *,
        environment: Mapping[str, str],
        mounts: Sequence[Mount],
        own: Path,
    ) -> None:
        self.node = node
        self.spec = spec
        self.name: str = spec["name"]
        self._environment = environment
        root_mode = "ro" if spec["securityContext"].get("readOnlyRootFilesystem") else "rw"
        words = [word for mount in mounts for word in mount]
        command = [*spec["command"], *spec.get("args", [])]
        self.process: Process = node.popen(
            [*_NAMESPACES, image, own, root_mode, *words, "--", *self._dressed(command)], log=own.name
        )

    @property
    def pid(self) -> int:
        """The container's process 1, as the machine sees it, once it runs its program."""
        found: list[int] = []

        def forked() -> bool:
            found[:] = children(self.process.pid)
            return bool(found) and Path(f"/proc/{found[0]}/root").readlink() != Path("/")

        self.process.await_that(forked, f"{self.name} running")
        return found[0]

    @property
    def running(self) -> bool:
        return self.process.running

    def execute(self, command: Sequence[str]) -> Answer:
        """Run a command in it as `kubectl exec` does: with its user, capabilities and variables."""
        into = ("--mount", "--pid", "--net", "--uts", "--root", "--wdns=/")
        entered = ("nsenter", f"--target={self.pid}", *into)
        done = subprocess.run(
            [*entered, "--", *self._dressed(command)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30.0,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def probe(self, kind: str) -> Answer:
        """Probe it as the kubelet does; `kind` is startupProbe, readinessProbe or livenessProbe."""
        probe = self.spec[kind]
        if "exec" in probe:
            return self.execute(probe["exec"]["command"])
        page = probe["httpGet"]
        url = f"http://{page['host']}:{page['port']}{page['path']}"
        asked = ["curl", "--silent", "--fail", "--max-time", str(probe["timeoutSeconds"]), url]
        done = self.node.run(asked, check=False)
        return Answer(done.returncode, done.stdout, done.stderr)

    def await_probe(self, kind: str, *, seconds: float = 30.0) -> None:
        self.process.await_that(
            lambda: self.probe(kind).exit_code == 0,
            f"{self.name}: {kind}",
            seconds=seconds,
            every=0.1,  # it starts programs, where the agent that it waits for needs the processor
        )

    def await_line(self, words: str, *, seconds: float = 20.0) -> None:
        self.process.await_that(lambda: words in self.log(), f"saying {words!r}", seconds=seconds)

    def log(self) -> str:
        return self.process.said()

    def signal(self, number: Signals) -> None:
        os.kill(self.pid, number)

    def end_early(self) -> int:
        """Send SIGTERM once its process 1 is its program, which has no handler yet; returns the exit code."""
        comm = Path(f"/proc/{self.pid}/comm")
        self.process.await_that(
            lambda: comm.read_text("ascii").strip() not in {"chroot", "env", "setpriv"}, "begun", every=0.001
        )
        self.signal(SIGTERM)
        return self.wait(seconds=30)

    def kill(self) -> None:
        """Kill it and return when none of its processes is left, as a runtime does; idempotent.

        That is when the `unshare` before process 1 ends.
        """
        if self.running:
            for first in children(self.process.pid) or [self.process.pid]:
                os.kill(first, SIGKILL)
            self.process.wait()

    def wait(self, *, seconds: float = 10.0) -> int:
        wait_until(lambda: not self.running, f"the end of {self.name}", seconds=seconds)
        return self.process.wait()

    def _dressed(self, command: Sequence[str]) -> list[str]:
        variables = [f"{name}={value}" for name, value in self._environment.items()]
        return ["env", "--ignore-environment", *variables, *privileges(self.spec), *command]


class Pod:
    """A pod of one container, as its DaemonSet's template describes it.

    `image` is the image's root and variables, `contents` the files of its ConfigMap and projected volumes, by
    volume, `variables` what the kubelet adds to every container's.
    """

    def __init__(  # noqa: PLR0913 - what a kubelet knows of a pod
        self,
        node: Host,
        template: Object,
        directory: Path,
        *,
        image: tuple[Path, Mapping[str, str]],
        contents: Mapping[str, Mapping[str, str]],
        variables: Mapping[str, str],
    ) -> None:
        self.node = node
        self.spec: Object = template["spec"]
        if not self.spec["hostNetwork"]:
            raise WorldError("a pod with a network of its own is not imitated")
        self._image = image
        self._contents = contents
        self._variables = variables
        self.name = f"pod{next(_numbers)}"
        self._directory = directory / self.name
        self._hosts = self._directory / "etc-hosts"
        self._mounted: list[Path] = []
        self._volumes: dict[str, str] = {}
        self.container: Container

    def start(self) -> None:
        self._directory.mkdir()
        # As the kubelet has it on the node's network: what the node's file says when the pod starts.
        self._hosts.write_bytes(b"# Kubernetes-managed hosts file (host network).\n" + self.node.read_hosts())
        self._volumes = {one["name"]: self._make_volume(one) for one in self.spec["volumes"]}
        self.restart()

    def await_ready(self) -> None:
        for kind in ("startupProbe", "readinessProbe"):
            if kind in self.container.spec:
                self.container.await_probe(kind)

    def restart(self) -> None:
        """Start the container, or again when it has ended: with the same volumes."""
        (spec,) = self.spec["containers"]
        root, from_image = self._image
        given = {"HOME": "/root", "HOSTNAME": self.node.name, **from_image, **self._variables}
        own = self._directory / f"{self.name}-{spec['name']}-{next(_numbers)}"
        variables = self._environment(spec)
        mounts: list[Mount] = [(self._hosts, "/etc/hosts", "rw")]
        for mount in spec["volumeMounts"]:
            if unknown := mount.keys() - {"name", "mountPath", "readOnly", "subPathExpr"}:
                raise WorldError(f"{spec['name']}: {sorted(unknown)} of a mount is not imitated")
            source = self._volumes[mount["name"]]
            if "subPathExpr" in mount:
                source = f"{source}/{_resolved(mount['subPathExpr'], variables)}"
                self.node.run(["mkdir", "-p", "-m", "0755", source])
            mounts.append((source, mount["mountPath"], "ro" if mount.get("readOnly") else "rw"))
        self.container = Container(
            self.node, spec, root, environment=given | variables, mounts=mounts, own=own
        )

    def terminate(self) -> None:
        """Ask it to end, as the kubelet does at once when the pod is deleted."""
        if self.container.running:
            self.container.signal(SIGTERM)

    def remove(self) -> None:
        """Kill what still runs (the end of the grace period, or of the node), and take its volumes away."""
        self.container.kill()
        for mounted in reversed(self._mounted):
            self.node.run(["umount", mounted])
        self._mounted.clear()

    def _environment(self, spec: Object) -> dict[str, str]:
        fields = {
            "spec.nodeName": self.node.name,
            "metadata.namespace": "nodeagent",
            "metadata.name": self.name,
            "metadata.uid": self.name,
        }
        found: dict[str, str] = {}
        for variable in spec.get("env", []):
            if "valueFrom" in variable:
                found[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            else:
                found[variable["name"]] = _resolved(variable["value"], found)
        return found

    def _make_volume(self, volume: Object) -> str:
        name: str = volume["name"]
        if "hostPath" in volume:
            return self._host_path(volume["hostPath"])
        path = self._directory / name
        path.mkdir()
        if "emptyDir" in volume:
            # The kubelet's mode, whatever the medium.
            size = volume["emptyDir"].get("sizeLimit", "64Mi").removesuffix("i")
            self.node.run(["mount", "-n", "-t", "tmpfs", "-o", f"mode=0777,size={size}", "tmpfs", path])
            self._mounted.append(path)
        else:
            mode = (volume.get("projected") or volume["configMap"]).get("defaultMode", 0o644)
            for file, text in self._contents[name].items():
                (path / file).write_text(text, encoding="utf-8")
                (path / file).chmod(mode)
        return str(path)

    def _host_path(self, source: Object) -> str:
        path: str = source["path"]
        made = {
            "Directory": ["test", "-d", path],
            "DirectoryOrCreate": ["mkdir", "-p", "-m", "0755", path],
            "FileOrCreate": ["sh", "-c", 'test -e "$0" || : >"$0"', path],
        }
        if source["type"] not in made:
            raise WorldError(f"{path}: type {source['type']} of a hostPath is not imitated")
        self.node.run(made[source["type"]])
        return path


def _resolved(text: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], text)
