"""The page's way over from hairpin-proxy: what pods are answered before, between and after its steps."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.apiserver import objects
from tests.apiserver.listener import free_ports
from tests.cases import cases_of
from tests.coredns import corpus
from tests.coredns.real import COREDNS, ask, serving
from tests.coredns.resolving import PASSED_ON

_PAGE = Path(__file__).parents[2] / "docs" / "install.md"
_RELAY = "hairpin-proxy.hairpin-proxy.svc.cluster.local"


def _with_lines_deleted(corefile: str) -> str:
    """Run the page's command on the ConfigMap as kubectl prints it; return the Corefile that it leaves."""
    command = re.search(r"\$ (sed .*) coredns-before\.yaml \| kubectl replace", _PAGE.read_text("utf-8"))
    assert command is not None
    printed = yaml.dump(
        objects.config_map("coredns", "kube-system", {"Corefile": corefile}), Dumper=_Blocks, width=1000
    )
    sed = shlex.split(command[1])
    done = subprocess.run(sed, input=printed, capture_output=True, text=True, check=True)
    text: str = yaml.safe_load(done.stdout)["data"]["Corefile"]
    return text


class _Blocks(yaml.SafeDumper):
    """Prints texts of several lines as kubectl does."""


_Blocks.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def test_the_command_deletes_hairpin_proxys_lines_and_no_other() -> None:
    before = corpus.corefile("hairpin-proxy").splitlines(keepends=True)
    left = _with_lines_deleted("".join(before))
    assert left == "".join(line for line in before if "Added by hairpin-proxy" not in line)
    assert len(left.splitlines()) == len(before) - 2


@pytest.mark.skipif(not COREDNS, reason="COREDNS=/path/to/coredns is not given: no real CoreDNS")
@pytest.mark.parametrize(
    ("there", "answer"),
    [
        pytest.param({"lines", "namespace"}, "10.96.0.30", id="before"),
        pytest.param({"namespace"}, "203.0.113.10", id="without its lines"),
        pytest.param(set(), "203.0.113.10", id="without its namespace, too"),
        pytest.param({"lines"}, PASSED_ON, id="its namespace deleted first: no pod finds the site"),
    ],
)
def test_pods_find_the_site_in_the_pages_order(tmp_path: Path, there: set[str], answer: str) -> None:
    corefile = corpus.corefile("hairpin-proxy")
    port, other, nothing = free_ports(3)
    ours = corefile if "lines" in there else _with_lines_deleted(corefile)
    # No API server is asked for Services here: the other server has the only one.
    ours = re.sub(r"\n    (kubernetes .*|health)", "", ours).replace("/etc/resolv.conf", f"127.0.0.1:{other}")
    ours = ours.replace(".:53 {", f".:{port} {{\n    bind 127.0.0.1", 1)
    service = f"10.96.0.30 {_RELAY}" if "namespace" in there else ""
    world = cases_of(__file__, "cases.yaml")["world"].format(other=other, nothing=nothing, service=service)
    with serving(f"{ours}\n{world}", tmp_path, port, "app.example.com"):
        assert ask(port, "app.example.com", "A") == answer
