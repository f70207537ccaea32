import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from ipaddress import ip_address, ip_network
from itertools import count
from pathlib import Path

import pytest

from nodeagent import __version__
from nodeagent.components.dnat.nftables import replacement
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import DnatRules, Redirect
from nodeagent.model.objects import ObjectRef
from tests.daemonset.image_root import DOCKERFILE, ImageRoot
from tests.daemonset.pods import Container, Mount
from tests.testbed.addresses import SITE
from tests.testbed.agent import Answer
from tests.testbed.world import MANIFESTS, NODEAGENT_CONFIG, World

_LINES = re.sub(r"\s*\\\n\s*", " ", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE.read_text("utf-8"))).splitlines()
"""Its instructions, a line each."""
_LARGEST_MEGABYTES = 250
_NOBODY = 65532
RELAYED = Endpoint(ip_address("203.0.113.77"), 443)
_IMPORT_ALL = """
import importlib, pkgutil, nodeagent
found = [module.name for module in pkgutil.walk_packages(nodeagent.__path__, "nodeagent.")]
for name in found:
    if not name.endswith("__main__"):
        importlib.import_module(name)
from kubernetes import client, config
print(len(found))
"""
_LIBRARIES = Path(__file__).with_name("libraries.sh").read_text("utf-8")

Once = Callable[..., Answer]


@pytest.fixture(scope="module")
def once(world: World, image: ImageRoot) -> Once:
    """Run commands on node2, as `docker run --rm --read-only` does; an agent may run on node1."""
    numbers = count()

    def run(
        command: list[str], user: int, capabilities: Sequence[str] = (), mounts: Sequence[Mount] = ()
    ) -> Answer:
        context = {
            "runAsUser": user,
            "runAsGroup": user,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": capabilities},
        }
        container = Container(
            world.node2,
            {"name": "once", "command": command, "securityContext": context},
            image.path,
            environment=image.environment,
            mounts=mounts,
            own=world.tmp / f"once{next(numbers)}",
        )
        return Answer(container.process.wait(seconds=60), container.log(), "")

    return run


def test_the_linter_finds_nothing() -> None:
    """The file lists what the linter ignores, each with its reason."""
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, "--no-color", DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_package_is_installed_by_its_hash() -> None:
    """And nothing is fetched to build one: what builds is locked, too."""
    runs = [part for line in _LINES if line.startswith("RUN ") for part in line.split(" && ")]
    fetching = [run for run in runs if re.search(r"pip .*\b(install|wheel|download)\b", run)]
    assert len(fetching) == 4
    for run in fetching:
        assert "--require-hashes" in run or "--no-index" in run or "--no-deps" in run, run
        assert "--no-build-isolation" in run or "build.txt" in run or "--no-index" in run, run


def test_its_size(image: ImageRoot, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nimage: {image.megabytes:.0f} MB of files")
    assert image.megabytes < _LARGEST_MEGABYTES


def test_it_says_what_it_is_and_what_it_runs(image: ImageRoot) -> None:
    """Not as root, and by a number, so that `runAsNonRoot` can judge it."""
    wanted = {"title", "description", "licenses", "version", "revision"}
    labels = image.config["Labels"]
    assert {f"org.opencontainers.image.{name}" for name in wanted} <= labels.keys()
    assert labels["org.opencontainers.image.version"] == __version__
    assert (image.config["Entrypoint"], image.config["Cmd"]) == (["nodeagent"], ["--help"])
    assert image.config["User"] == f"{_NOBODY}:{_NOBODY}"


def test_a_plan_needs_no_root(once: Once) -> None:
    answer = once(
        ["nodeagent", "plan", "--manifests", "/objects", "--config", "/config.yaml", "--node", "node2"],
        user=_NOBODY,
        mounts=[(MANIFESTS, "/objects", "ro"), (NODEAGENT_CONFIG, "/config.yaml", "ro")],
    )
    assert answer.exit_code == 2, answer
    assert "ingress-nginx/ingress-nginx-controller: 203.0.113.10 -> 169.254.66." in answer.text
    assert f" {SITE}\n" in answer.text


def test_no_module_and_no_library_is_missing(once: Once) -> None:
    answer = once(["python", "-c", _IMPORT_ALL], user=_NOBODY)
    assert answer.exit_code == 0, answer
    assert int(answer.text) > 100
    answer = once(["sh", "-c", _LIBRARIES], user=_NOBODY)
    assert (answer.exit_code, answer.text) == (0, "")


@pytest.mark.parametrize("program", ["iptables-nft", "ip6tables-nft"])
def test_iptables_over_nftables_with_one_capability(once: Once, program: str) -> None:
    """What nft itself can do with it is shown by the next test."""
    answer = once([program, "-t", "nat", "-S"], user=0, capabilities=["NET_ADMIN"])
    assert answer.exit_code == 0, answer
    assert "-P PREROUTING ACCEPT" in answer.text


def test_our_table_and_another_version_of_nft_do_not_meet_badly(world: World, once: Once) -> None:
    """The node's nft lists what the image's made, and the image's what the node's made: neither crashes."""
    rules = DnatRules(
        (Redirect(RELAYED, Endpoint(ip_address("169.254.66.9"), 443), ObjectRef("Service", "a", "b")),),
        pods=(ip_network("10.244.1.0/24"),),
        guarded=(ip_network("169.254.66.0/24"),),
        admitted=(ip_network("10.244.1.0/24"),),
    )
    script = shlex.quote(replacement(rules))
    own = ["sh", "-ec", f"printf %s {script} | nft -f - && nft list ruleset && nft --json list ruleset"]
    world.node2.run(["nft", "add table ip others; add set ip others one { type ipv4_addr; }"])
    try:
        answer = once(own, user=0, capabilities=["NET_ADMIN"])
        assert answer.exit_code == 0, answer
        assert "table ip others" in answer.text
        assert "table inet nodeagent" in world.node2.run(["nft", "list", "ruleset"]).stdout
        assert '"nodeagent"' in world.node2.run(["nft", "--json", "list", "ruleset"]).stdout
    finally:
        world.node2.run(["nft", "delete table inet nodeagent; delete table ip others"])


def test_no_compiler_no_pip_and_nothing_to_compile_at_run_time(image: ImageRoot) -> None:
    for name in ("gcc", "cc", "pip", "pip3", "curl"):
        assert not (image.path / "usr/bin" / name).exists()
        assert not (image.path / "opt/nodeagent/bin" / name).exists()
    (packages,) = image.path.glob("opt/nodeagent/lib/python3*/site-packages")
    for source in (packages / "nodeagent").rglob("*.py"):
        assert list((source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")) != [], source
    assert not [name for name in ("kubernetes/aio", "aiohttp", "attr") if (packages / name).exists()]
    assert [file.name for file in (packages / "kubernetes/client/models").glob("*.py")] == ["__init__.py"]
    foreign = [file for file in image.path.rglob("opt/**/*") if file.lstat().st_uid != 0]
    assert foreign == [], "what the agent runs on is root's alone"
