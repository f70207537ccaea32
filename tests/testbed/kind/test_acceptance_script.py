"""acceptance.sh to its end, with programs in place of docker, kind and kubectl that note their calls."""

import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.testbed.addresses import NAMES
from tests.testbed.certificates import make_certificates
from tests.testbed.kind.render import objects
from tests.testbed.services import INGRESS_SERVICE
from tests.testbed.vagrant.manifests import IMAGE

_SCRIPT = Path(__file__).parent / "acceptance.sh"
_CLUSTER = "nodeagent-acceptance"
_NODES = (f"{_CLUSTER}-control-plane", f"{_CLUSTER}-worker", f"{_CLUSTER}-worker2")
_NOTE = """#!/bin/bash
programs=${0%/*}
{ printf '%s' "${0##*/}"; printf ' %s' "$@"; echo; } >>"$programs/noted"
if [[ -e $programs/broken && "${0##*/} $*" == $(<"$programs/broken") ]]; then
    echo "it does not work" >&2
    exit 7
fi
"""
_DOCKER = f"""{_NOTE}
case "$*" in
*"inspect --format"*worker) echo 172.30.99.130 ;;
*"inspect --format"*worker2) echo 172.30.99.131 ;;
"cp"*haproxy.cfg*) cp "$3" "$programs/haproxy.cfg" ;;
esac
"""
_KIND = f"""{_NOTE}
case "$1 $2" in
"get clusters") cat "$programs/clusters" 2>/dev/null || echo 'No kind clusters found.' >&2 ;;
"create cluster") echo made >"$KUBECONFIG" ;;
esac
"""
_KUBECTL = f"""{_NOTE}
case "$*" in
"get nodes"*) printf 'node/%s\\n' {" ".join(_NODES)} ;;
"apply -f -") cat >"$programs/applied" ;;
esac
"""
_PYTHON = f"""{_NOTE}
[[ $2 == tests.acceptance ]] || exec {sys.executable} "$@"
"""
# Renders nothing but the file that is copied: what the script does when something fails depends on no more.
_EMPTY_PYTHON = f"""{_NOTE}
[[ $3 != certificates ]] || {{ mkdir "$4" && touch "$4/ca.crt"; }}
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory of programs, to come first in PATH."""
    return _write_programs(tmp_path, _EMPTY_PYTHON)


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, after the script has run to its end."""
    programs = _write_programs(tmp_path_factory.mktemp("accepted"), _PYTHON)
    done = _accept(programs)
    assert done.returncode == 0, done.stderr
    return programs


def test_the_steps_are_played_on_the_workers_and_nothing_is_left(accepted: Path) -> None:
    noted = _noted(accepted)
    played = next(line for line in noted if "tests.acceptance cluster" in line)
    nodes = f"--node {_NODES[1]} --node {_NODES[2]}"
    assert f"--node-command docker exec {{node}} {nodes} --load-balancer 172.30.99.10" in played
    assert "--pod-image localhost/testbed:1" in played
    kubeconfig = Path(played.split("--kubeconfig ")[1].split()[0])
    assert noted[noted.index(played) + 1 :] == [
        f"kind delete cluster --quiet --name {_CLUSTER}",
        f"docker rm --force {_CLUSTER}-lb",
        f"docker network rm {_CLUSTER}",
    ]
    assert not kubeconfig.parent.exists()


def test_the_load_balancer_sends_proxy_to_both_workers_and_has_every_name(accepted: Path) -> None:
    lines = (accepted / "haproxy.cfg").read_text("ascii").splitlines()
    assert "    bind 172.30.99.10:443" in lines
    for node, address in zip(_NODES[1:], ("172.30.99.130", "172.30.99.131"), strict=True):
        assert any(f"server {node} {address}:30443 send-proxy " in line for line in lines)
    (made,) = (line for line in _noted(accepted) if line.startswith("docker create"))
    assert all(f"--network-alias {name}" in made for name in NAMES)
    assert made.endswith("--entrypoint haproxy nodeagent:vagrant -W -db -f /etc/haproxy/haproxy.cfg")


def test_every_image_that_a_pod_must_have_is_loaded(accepted: Path) -> None:
    loaded, pulled = (line for line in _noted(accepted) if line.startswith("kind load"))
    assert loaded.endswith(f"nodeagent:vagrant {IMAGE}")
    assert pulled.endswith(f"--nodes {_CLUSTER}-control-plane localhost/pulled:1")
    built = {line.split("--tag ")[1].split()[0] for line in _noted(accepted) if "buildx build" in line}
    assert built == {"nodeagent:vagrant", IMAGE, "localhost/pulled:1"}


def test_what_is_applied_leaves_the_clusters_dns_its_address(accepted: Path, tmp_path: Path) -> None:
    """The DNS of a cluster by kubeadm gets 10.96.0.10; the virtual machines' ingress controller has it."""
    applied = json.loads((accepted / "applied").read_text("utf-8"))["items"]
    taken = [obj["spec"].get("clusterIP") for obj in applied if obj["kind"] == "Service"]
    assert len(taken) == 2
    assert str(INGRESS_SERVICE.cluster_ip) not in taken
    make_certificates(tmp_path / "certificates", NAMES)
    again = objects(tmp_path / "certificates", "172.30.99.10")
    assert [obj for obj in applied if obj["kind"] != "Secret"] == [
        obj for obj in again if obj["kind"] != "Secret"
    ]


@pytest.mark.parametrize("program", ["docker", "kind", "kubectl"])
def test_a_missing_program_is_named_before_anything_is_made(programs: Path, program: str) -> None:
    (programs / program).unlink()
    done = _accept(programs, path=f"{programs}:{_without(programs, program)}")
    assert done.returncode == 1
    assert done.stderr == f"acceptance-kind: not installed: {program}; nothing was made\n"
    assert not (programs / "noted").exists()


def test_a_daemon_that_does_not_answer(programs: Path) -> None:
    (programs / "broken").write_text("docker info")
    done = _accept(programs)
    assert done.returncode == 1
    assert "Docker's daemon does not answer" in done.stderr
    assert _noted(programs) == ["docker info"]


def test_a_cluster_of_that_name_is_left_alone(programs: Path) -> None:
    (programs / "clusters").write_text(f"kind\n{_CLUSTER}\n")
    done = _accept(programs)
    assert done.returncode == 1
    assert f"kind delete cluster --name {_CLUSTER}" in done.stderr
    assert _noted(programs) == ["docker info", "kind get clusters"]


@pytest.mark.parametrize(
    "broken", ["kind load*", "kubectl apply*", "docker exec * ctr *", "python -m tests.acceptance *"]
)
def test_a_failure_is_the_scripts_own_and_everything_is_removed(programs: Path, broken: str) -> None:
    (programs / "broken").write_text(broken)
    done = _accept(programs)
    assert done.returncode == 7
    assert "it does not work" in done.stderr
    noted = _noted(programs)
    assert any(line.startswith("kubectl --namespace nodeagent logs") for line in noted)
    assert noted[-3] == f"kind delete cluster --quiet --name {_CLUSTER}"
    assert any("tests.acceptance" in line for line in noted) == broken.startswith("python")


def test_a_cluster_is_kept_on_request(programs: Path) -> None:
    done = _accept(programs, KEEP="1")
    assert done.returncode == 0
    assert not any("delete" in line for line in _noted(programs))
    assert "kubeconfig" in done.stderr


def _write_programs(directory: Path, python: str) -> Path:
    for name, text in (("docker", _DOCKER), ("kind", _KIND), ("kubectl", _KUBECTL), ("python", python)):
        (directory / name).write_text(text, "ascii")
        (directory / name).chmod(0o755)
    return directory


def _accept(programs: Path, path: str = "", **environment: str) -> CompletedProcess[str]:
    (programs / "tmp").mkdir()
    return subprocess.run(
        [_SCRIPT, programs / "python"],
        env={
            "PATH": path or f"{programs}:{os.environ['PATH']}",
            "TMPDIR": str(programs / "tmp"),
        }
        | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _without(programs: Path, program: str) -> Path:
    """Return a directory of what the script starts before it finds that a program is missing."""
    directory = programs / "others"
    directory.mkdir()
    for name in ("bash", "env", "dirname", "openssl"):
        (directory / name).symlink_to(f"/usr/bin/{name}")
    return directory


def _noted(programs: Path) -> list[str]:
    return (programs / "noted").read_text("utf-8").splitlines()
