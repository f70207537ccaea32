import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.cli.main import run
from nodeagent.linux.programs import find_program
from tests.apiserver import objects
from tests.testbed.agent import Answer

NODE = "node1"
ADDRESS = "203.0.113.10"
PORT = 18443
"""Hardly anything listens on it on the machine that runs the tests: a port that is taken is not relayed."""
HOST = "site.example.test"
HOSTS_FILE = "127.0.0.1\tlocalhost\n"

Manifest = dict[str, Any]


needs_nft = pytest.mark.skipif(find_program("nft") is None, reason="needs the nft program")

Ask = Callable[..., Answer]
"""Calls a command with these options."""


class CommandLine:
    """Calls nodeagent in this process, with manifests, configuration, hosts file and more in a directory."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.manifests = directory / "manifests"
        self.manifests.mkdir()
        self.config = directory / "nodeagent.yaml"
        self.hosts_file = directory / "hosts"
        self.hosts_file.write_text(HOSTS_FILE, encoding="ascii")
        self.run_directory = directory / "run"
        self.write(service=service(), ingress=ingress(HOST))
        self.configure()

    @property
    def options(self) -> list[str]:
        return ["--manifests", str(self.manifests), "--config", str(self.config), "--node", NODE]

    def write(self, **manifests: object) -> None:
        for name, manifest in manifests.items():
            (self.manifests / f"{name}.json").write_text(json.dumps(manifest), encoding="utf-8")

    def configure(self, **sections: Mapping[str, object]) -> None:
        """Write the configuration: one that stays off the machine, but for the sections given."""
        document: dict[str, Any] = {
            "loadBalancers": {"services": [{"namespace": "ingress", "name": "controller"}]},
            "relay": {"launch": True, "runDir": str(self.run_directory)},
            "dnat": {"backend": "none"},
            "hosts": {"file": str(self.hosts_file), "verify": "allow", "allow": ["example.test"]},
        }
        for name, options in sections.items():
            document[name] = document[name] | dict(options)
        self.config.write_text(yaml.safe_dump(document), encoding="utf-8")

    def __call__(self, command: str, *options: str) -> Answer:
        mine = ["--config", str(self.config)] if command == "cleanup" else self.options
        return self.bare(command, *mine, *options)

    def bare(self, *arguments: str) -> Answer:
        code = run(arguments)
        said = self._capsys.readouterr()
        return Answer(code, said.out, said.err)


def service(name: str = "controller", **spec: object) -> Manifest:
    """Return a LoadBalancer Service; `spec` replaces fields of its own."""
    ports = [objects.Port("https", PORT, PORT)]
    made = objects.service(name, "ingress", kind="LoadBalancer", ports=ports, addresses=[ADDRESS])
    made["spec"] |= spec
    return made


def ingress(*hosts: str, name: str = "web") -> Manifest:
    made = objects.ingress(name, hosts=hosts, addresses=[ADDRESS])
    del made["spec"]["tls"]
    return made
