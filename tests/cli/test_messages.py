"""What is said of bad input: what failed, on which object, what was left unchanged, what to do.

A snapshot of all of it, in messages.txt beside this file: read its diff as a user would, then write it again
by `WRITE_MESSAGES=1 pytest tests/cli/test_messages.py`.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.apiserver import ApiServer, faults, objects
from tests.cli.command_line import CommandLine, service
from tests.fleet.simulated import Fleet
from tests.root import needs_root

_SNAPSHOT = Path(__file__).with_name("messages.txt")
_HEAD = re.compile(r"^### (.*)$", re.MULTILINE)


class Scene:
    """A command line, a simulated API server with two nodes, and kubeconfigs for it."""

    def __init__(self, command_line: CommandLine, api: ApiServer, folder: Path) -> None:
        self.line = command_line
        self.api = api
        self.folder = folder
        Fleet(api, 2)

    def path(self, name: str) -> Path:
        return self.folder / name

    def config(self, text: str) -> "Scene":
        self.line.config.write_text(text, encoding="utf-8")
        return self

    def manifest(self, text: str) -> "Scene":
        self.path("manifests/more.yaml").write_text(text, encoding="utf-8")
        return self

    def without_manifests(self) -> "Scene":
        for file in self.line.manifests.iterdir():
            file.unlink()
        return self

    def kubeconfig(self, *, user: object = None, cluster: object = None, **fields: object) -> "Scene":
        document = yaml.safe_load(self.api.write_kubeconfig(self.path("kubeconfig")).read_text("utf-8"))
        if user is not None:
            document["users"][0]["user"] = user
        if cluster is not None:
            document["clusters"][0]["cluster"] = cluster
        self.path("kubeconfig").write_text(yaml.safe_dump({**document, **fields}), encoding="utf-8")
        return self

    def without(self, *kinds: str) -> None:
        for kind in kinds:
            self.api.store.replace_all(kind, ())

    def fault(self, fault: faults.Answer | faults.Hold | faults.Disconnect, path: str = "*") -> "Scene":
        self.api.faults.add(fault, path=path, times=None)
        return self


_NODES = ("worker-1", "worker-2", "worker-10", "control-plane-1", "edge", "far-away-1", "far-away-2")
_ONLINE = ("status", "fleet", "uninstall")
_FILES = ("plan", "apply", "status", "doctor", "cleanup")
_CASES: dict[str, tuple[Callable[[Scene], object], tuple[str, ...]]] = {
    # The configuration.
    "no configuration": (lambda it: it.line.config.unlink(), (*_FILES, "uninstall")),
    "a directory as configuration": (lambda it: _directory(it.line.config), ("plan", "cleanup")),
    "a configuration in Latin-1": (lambda it: it.line.config.write_bytes(b"# caf\xe9"), ("plan",)),
    "a configuration with a tab": (lambda it: it.config("dnat:\n\tpods: true\n"), ("plan", "cleanup")),
    "a configuration that repeats itself": (lambda it: it.config("dnat: &a {x: *a}\n"), ("plan",)),
    "an unknown key": (lambda it: it.config("hosts:\n  alow: []\n"), (*_FILES, "uninstall")),
    "a key of no section": (lambda it: it.config("allow: []\n"), ("plan",)),
    "a wrong type": (lambda it: it.config("relay: {maxConnections: many, launch: 7}\n"), ("plan",)),
    "a list for a mapping": (lambda it: it.config("- hosts\n"), ("apply",)),
    "a range without host bits": (lambda it: it.config("relay: {ipv4: 10.0.0.1/8}\n"), ("plan",)),
    "another file than hosts": (
        lambda it: it.line.configure(hosts={"file": str(it.path("nodeagent.yaml"))}),
        ("plan", "apply", "cleanup"),
    ),
    "several mistakes": (
        lambda it: it.config("relay:\n  interfaces: x\nhosts:\n  allow: ['*.example.test']\n"),
        ("plan",),
    ),
    # Manifests.
    "no manifests": (lambda it: it.without_manifests().line.manifests.rmdir(), ("plan", "apply", "doctor")),
    "an empty directory": (lambda it: it.without_manifests(), ("plan", "apply", "doctor")),
    "a manifest with a tab": (lambda it: it.manifest("kind: Service\nspec:\n\ttype: x\n"), ("plan",)),
    "only what is not YAML": (lambda it: it.without_manifests().manifest("a: [b"), ("plan",)),
    "an empty list": (
        lambda it: it.without_manifests().manifest("kind: List\nitems: []\n"),
        ("plan", "apply", "doctor"),
    ),
    "a manifest with wrong types": (
        lambda it: it.manifest("kind: Ingress\nmetadata: {name: web}\nspec: [rules]\nstatus: odd\n"),
        ("plan",),
    ),
    "a manifest without a name": (lambda it: it.manifest("kind: Ingress\nspec: {}\n"), ("plan",)),
    "a manifest with a merge key": (
        lambda it: it.manifest("a: &a {kind: Ingress}\nb:\n  <<: *a\n"),
        ("plan",),
    ),
    "no Node of that name": (
        lambda it: it.line.write(nodes={"kind": "List", "items": [objects.node(name) for name in _NODES]}),
        ("plan", "apply", "doctor --from node"),
    ),
    "another machine's Node": (lambda it: it.line.write(node=objects.node("node1")), ("apply",)),
    "a Service that can't be used": (lambda it: it.line.write(service=service(ports=7)), ("plan",)),
    # The kubeconfig.
    "no kubeconfig": (lambda _: None, _ONLINE),
    "a directory as kubeconfig": (lambda it: _directory(it.path("kubeconfig")), ("fleet",)),
    "a kubeconfig that is not YAML": (lambda it: it.path("kubeconfig").write_text("a: [b"), ("fleet",)),
    "a kubeconfig of another form": (lambda it: it.path("kubeconfig").write_text("- a\n"), ("fleet",)),
    "a kubeconfig without a context": (lambda it: it.kubeconfig(**{"current-context": ""}), ("fleet",)),
    "an unknown context": (lambda it: it.kubeconfig(), ("fleet --context staging",)),
    "a plugin that is missing": (lambda it: it.kubeconfig(user=_plugin("doctl")), (*_ONLINE, "doctor")),
    "a plugin that fails": (lambda it: it.kubeconfig(user=_plugin("false")), ("fleet",)),
    "a certificate authority that is missing": (
        lambda it: it.kubeconfig(
            cluster={"server": "https://127.0.0.1:1", "certificate-authority": "/no/ca.crt"}
        ),
        ("fleet",),
    ),
    "a name that can't be resolved": (
        lambda it: it.kubeconfig(cluster={"server": "https://api.invalid:6443"}),
        ("fleet",),
    ),
    "TLS that the server does not speak": (
        lambda it: it.kubeconfig(cluster={"server": it.api.url.replace("http:", "https:")}),
        ("fleet",),
    ),
    "a user without a token": (
        lambda it: it.kubeconfig(
            user={"auth-provider": {"name": "oidc", "config": {"client-secret": "s3cret"}}}
        ),
        ("fleet",),
    ),
    "a server that is no URL": (
        lambda it: it.kubeconfig(cluster={"server": "127.0.0.1:6443"}),
        _ONLINE,
    ),
    # The API server.
    "a server that is not there": (lambda it: it.kubeconfig().api.stop_listening(), (*_ONLINE, "bundle")),
    "a server that rejects the token": (lambda it: it.kubeconfig().fault(faults.Answer(401)), _ONLINE),
    "a server that forbids": (lambda it: it.kubeconfig().fault(faults.Answer(403)), _ONLINE),
    "a server that fails": (lambda it: it.kubeconfig().fault(faults.Answer(500)), (*_ONLINE, "bundle")),
    "a server that is busy": (
        lambda it: it.kubeconfig().fault(faults.Answer(429, retry_after=1)),
        ("fleet",),
    ),
    "a server that hangs up": (lambda it: it.kubeconfig().fault(faults.Disconnect()), ("fleet",)),
    "a captive portal": (lambda it: it.kubeconfig().fault(faults.html_page()), _ONLINE),
    "an answer that is broken": (
        lambda it: it.kubeconfig().fault(faults.Answer(200, body=b'{"kind": "Da')),
        ("status", "fleet"),
    ),
    "a server that does not answer": (
        lambda it: it.kubeconfig().fault(faults.Hold()),
        ("fleet --timeout 1",),
    ),
    "no such DaemonSet": (
        lambda it: it.kubeconfig(),
        ("fleet --namespace other", "bundle --namespace other"),
    ),
    "an uninstall that is denied": (
        lambda it: it.kubeconfig().fault(faults.Answer(403), "*/daemonsets/*"),
        ("uninstall",),
    ),
    "a DaemonSet without pods": (lambda it: it.kubeconfig().without("pods"), ("fleet",)),
    "a cluster without nodes": (lambda it: it.kubeconfig().without("pods", "nodes"), ("fleet",)),
    # Options.
    "options of the doctor": (
        lambda _: None,
        (
            "doctor --host site.example.test",
            "doctor --host 203.0.113.1",
            "doctor --host a_b..c",
            "doctor --from here",
            "doctor --kubeconfig DIR/kubeconfig",
        ),
    ),
    "options": (
        lambda it: it.kubeconfig(),
        (
            "",
            "version",
            "-V",
            "statsu",
            "xyzzy",
            "cleanup -o json",
            "cleanup --kubeconfig x",
            "plan --node",
            "fleet --timeout abc",
            "fleet --timeout 0",
            "fleet --tiemout 3",
            "fleet more",
            "plan --output yaml",
            "uninstall --daemonset nodeagent",
            "bundle --node node9",
            "bundle -o /nowhere/report.tar.gz",
            "run --telemetry-listen 9467",
        ),
    ),
}


def _directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def _plugin(command: str) -> dict[str, object]:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "args": []}}


pytestmark = needs_root


@pytest.fixture
def scene(
    command_line: CommandLine, api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Scene:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    return Scene(command_line, api, tmp_path)


@pytest.mark.parametrize("case", _CASES)
def test_the_messages_are_those_that_were_read(scene: Scene, case: str) -> None:
    arrange, commands = _CASES[case]
    arrange(scene)
    before = _files(scene.folder)
    said = "".join(_said(scene, case, command) for command in commands)
    assert _files(scene.folder) == before
    known = _known()
    if os.environ.get("WRITE_MESSAGES"):
        known[case] = said
        _SNAPSHOT.write_text("".join(f"### {one}\n{known.get(one, '')}" for one in _CASES), encoding="utf-8")
    assert said == known.get(case)
    assert "Traceback" not in said


def _known() -> dict[str, str]:
    text = _SNAPSHOT.read_text("utf-8") if _SNAPSHOT.exists() else ""
    parts = _HEAD.split(text)[1:]
    return {title: body[1:] for title, body in zip(parts[::2], parts[1::2], strict=True)}


def _said(scene: Scene, case: str, command: str) -> str:
    name, *more = command.split() or [""]
    options = {
        "plan": scene.line.options,
        "apply": scene.line.options,
        "doctor": scene.line.options,
        "status": scene.line.options,
        # `apply` only where it ends before it begins: this is the machine's own network.
        "cleanup": ["--config", str(scene.line.config)],
        "uninstall": ["--config", str(scene.line.config), "--kubeconfig", str(scene.path("kubeconfig"))],
        "fleet": ["--kubeconfig", str(scene.path("kubeconfig"))],
        "bundle": ["--kubeconfig", str(scene.path("kubeconfig"))],
    }.get(name, [])
    kube = list(_CASES).index(case) >= list(_CASES).index("no kubeconfig")
    if kube and "options" not in case and name in {"status", "doctor"}:
        options = ["--node", "n0", "--kubeconfig", str(scene.path("kubeconfig")), *options[2:4]]
    answer = scene.line.bare(
        *filter(None, (name, *more)), *(options if case != "options" or "-" in command else [])
    )
    text = f"{answer.stdout}{answer.stderr}"
    for found, shown in (
        (str(scene.folder), "DIR"),
        (f":{scene.api.port}", ":PORT"),
        (f"port={scene.api.port}", "port=PORT"),
    ):
        text = text.replace(found, shown)
    if "Not usable" in text:  # the rest is the plan
        unusable = " ".join(text[text.index("Not usable") :].partition("\n\n")[0].split())
        text = unusable.replace("usable", "usable\n ", 1) + "\n..." + text[text.rindex("\nnode ") :]
    text = re.sub(r"nodeagent-bundle-[0-9-]+", "nodeagent-bundle-TIME", text)
    text = re.sub(r"process \d+", "process N", text)
    return f"$ nodeagent {command}\n{text}[{answer.exit_code}]\n\n"


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
