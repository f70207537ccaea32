"""`nodeagent bundle`: what it holds, what it never holds, pseudonyms, and nodes that can't be asked."""

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeagent.agent.status_file import IN_POD
from nodeagent.fleet.bundle import _METRICS, Pseudonyms, hostnames_in, own_block
from tests.apiserver import ApiServer, objects
from tests.apiserver.containers import Ended
from tests.cli.command_line import Ask
from tests.fleet.simulated import NAMESPACE, UPTIME, Fleet, answering, status

_HOST = "shop.secret-customer.com"
_SECRETS = (
    "hunter2",
    "s3cr3t-password",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl",
    "my-own-line.example",
)
_HOSTS_FILE = (
    "127.0.0.1 localhost\n10.0.0.1 my-own-line.example\n"
    "# BEGIN nodeagent (managed block: edits between these lines are replaced)\n"
    f"169.254.66.1\t{_HOST}\n# END nodeagent\n"
)
_ANSWERS = {
    ("cat", "/etc/nodeagent/nodeagent.yaml"): "hosts: {file: /host/etc/hosts}\n",
    ("nodeagent", "status", "-o", "json"): json.dumps({"names": [{"name": _HOST}]}),
    ("nodeagent", "doctor", "-o", "json"): json.dumps({"sentence": "healthy"}),
    ("cat", "/run/nodeagent-relay/haproxy.cfg"): "global\n",
    ("nft", "list", "table", "inet", "nodeagent"): "table inet nodeagent {\n}\n",
    ("iptables-legacy-save",): "*nat\n-A OUTPUT -j NODEAGENT-OUT\n-A INPUT -j CUSTOMER\n",
    ("cat", "/host/etc/hosts"): _HOSTS_FILE,
    ("python3", "-c", _METRICS, "127.0.0.1:9467"): "nodeagent_writer 1\n",
}


def _node(fleet: Fleet, name: str) -> None:
    document = answering(status(name))

    def program(command: Sequence[str]) -> Ended:
        if tuple(command) in _ANSWERS:
            return Ended(0, _ANSWERS[tuple(command)].encode())
        if command == ["cat", str(IN_POD)]:
            return Ended(0, document(["cat", "/proc/uptime", command[1]]).stdout.partition(b"\n")[2])
        return document(command)

    fleet.add(name, program)
    log = f"proxy http://user:s3cr3t-password@proxy:3128 Bearer {_SECRETS[1]} name served name=www.{_HOST}\n"
    fleet.api.containers.run(NAMESPACE, f"nodeagent-{name}", "agent", program, log)


def _cluster(api: ApiServer, *names: str) -> Fleet:
    fleet = Fleet(api, 0)
    for name in names:
        _node(fleet, name)
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"}
    api.store.create(objects.ingress("shop", "shop", hosts=[_HOST], annotations=annotations))
    return fleet


def _members(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        found = {}
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            assert member.mode == 0o600
            found[member.name.partition("/")[2]] = content.read().decode()
        return found


def test_it_holds_what_a_report_needs_and_no_secret(api: ApiServer, ask: Ask, tmp_path: Path) -> None:
    _cluster(api, "node1", "node2")
    pod = api.store.get("pods", "nodeagent-node1", NAMESPACE)
    pod["spec"]["containers"][0]["env"] = [
        {"name": "HTTPS_PROXY_PASSWORD", "value": "hunter2"},
        {"name": "NODEAGENT_LOG_FORMAT", "value": "json"},
    ]
    api.store.update(pod)
    file = tmp_path / "report.tar.gz"
    reply = ask("bundle", "--node", "node1", "-o", str(file))
    assert (reply.exit_code, reply.stderr) == (0, "")
    assert file.stat().st_mode & 0o777 == 0o600
    members = _members(file)
    assert {
        "CONTENTS.txt",
        "about.txt",
        "fleet.json",
        "cluster/version.json",
        "cluster/ingresses.json",
    } <= set(members)
    assert {path.removeprefix("nodes/node1/") for path in members if path.startswith("nodes/")} == {
        "agent-status.txt",
        "doctor.json",
        "haproxy.cfg",
        "hosts-block.txt",
        "iptables.txt",
        "log-agent.txt",
        "metrics.txt",
        "nftables.txt",
        "nodeagent.yaml",
        "status.json",
    }
    whole = "".join(members.values())
    assert all(secret not in whole for secret in _SECRETS)
    assert "CUSTOMER" not in members["nodes/node1/iptables.txt"]
    assert _HOST in members["nodes/node1/hosts-block.txt"]
    assert "managedFields" not in whole
    assert "[left out]" in members["cluster/nodeagent-pods.json"]
    assert '"value": "json"' in members["cluster/nodeagent-pods.json"]
    assert "kept" in members["cluster/ingresses.json"]
    # What it holds and what it could not get is said before anything else is done with it.
    assert members["CONTENTS.txt"] in reply.stdout
    assert "nodes/node1/ip6tables.txt: ip6tables-legacy-save" in reply.stdout
    assert "nodes/node1/log-relay.txt" in reply.stdout
    assert "hostnames are readable" in reply.stdout
    assert not api.traffic.seen("*", "*/secrets*")


def test_an_anonymous_bundle_has_pseudonyms_everywhere_and_only_what_nodeagent_reads(
    api: ApiServer, ask: Ask, tmp_path: Path
) -> None:
    _cluster(api, "node1")
    said = {
        "nginx.ingress.kubernetes.io/server-alias": "alias.other-customer.example",
        "external-dns.alpha.kubernetes.io/hostname": "dns.other-customer.example",
        "nginx.ingress.kubernetes.io/configuration-snippet": "more_set_headers 'X-Key: hunter2hunter2';",
        "nginx.ingress.kubernetes.io/rewrite-target": "https://rewritten.other-customer.example/",
    }
    api.store.create(objects.ingress("annotated", hosts=["shop.other-customer.example"], annotations=said))
    key = "service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol"
    api.store.create(
        objects.load_balancer("web", "ingress", addresses=["203.0.113.9"], annotations=said | {key: "true"})
    )
    file = tmp_path / "report.tar.gz"
    assert ask("bundle", "--node", "node1", "--anonymize", "-o", str(file)).exit_code == 0
    members = _members(file)
    whole = "".join(members.values())
    assert not [secret for secret in ("secret-customer", "other-customer", "hunter2") if secret in whole]
    assert key in members["cluster/services.json"]
    pseudonym = json.loads(members["nodes/node1/status.json"])["names"][0]["name"]
    assert pseudonym.endswith(".invalid")
    assert pseudonym in members["cluster/ingresses.json"]
    assert pseudonym in members["nodes/node1/hosts-block.txt"]
    assert "annotations about PROXY" in members["CONTENTS.txt"]


def test_the_worst_nodes_are_looked_at_unless_some_are_named(
    api: ApiServer, ask: Ask, tmp_path: Path
) -> None:
    fleet = _cluster(api, "node1", "node2", "node3", "node4")
    fleet.set_pod("node4", answering(status("node4", written_at=UPTIME - 1000)))
    file = tmp_path / "report.tar.gz"
    assert ask("bundle", "-o", str(file)).exit_code == 0
    looked_at = {path.split("/")[1] for path in _members(file) if path.startswith("nodes/")}
    assert "node3" not in looked_at
    contents = _members(file)["CONTENTS.txt"]
    assert "nodes/node4/status.json: nodeagent status -o json: not found" in contents


def test_what_can_not_be_done_is_said_and_leaves_nothing(api: ApiServer, ask: Ask, tmp_path: Path) -> None:
    _cluster(api, "node1")
    file = tmp_path / "report.tar.gz"
    reply = ask("bundle", "--node", "node9", "-o", str(file))
    assert (reply.exit_code, file.exists()) == (1, False)
    assert "--node node9: no node of that name" in reply.stderr
    file.write_text("mine")
    reply = ask("bundle", "-o", str(file))
    assert (reply.exit_code, file.read_text()) == (1, "mine")
    assert "File exists" in reply.stderr
    api.stop_listening()
    reply = ask("bundle", "-o", str(tmp_path / "other.tar.gz"))
    assert reply.exit_code == 1
    assert "Connection refused" in reply.stderr
    assert not (tmp_path / "other.tar.gz").exists()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"spec": {"rules": [{"host": "a.example.com"}]}}', {"a.example.com"}),
        ('{"spec": {"hosts": ["*.example.com", "b.example.org"]}}', {"*.example.com", "b.example.org"}),
        ('{"match": "Host(`c.example.com`) && PathPrefix(`/x`)"}', {"c.example.com"}),
        ('{"metadata": {"name": "a.b.example"}}', set()),
        ("not json", set()),
    ],
)
def test_where_hostnames_are_found(text: str, found: set[str]) -> None:
    assert hostnames_in([text]) == found


def test_a_pseudonym_is_the_same_within_a_bundle_and_another_in_the_next() -> None:
    first, second = Pseudonyms(["a.example.com"], b"1"), Pseudonyms(["a.example.com"], b"2")
    assert first.replaced("x a.example.com, A.EXAMPLE.COM.") == first.replaced(
        "x A.example.com, a.example.com."
    )
    assert first.replaced("a.example.com") != second.replaced("a.example.com")
    assert first.replaced("new.example.com") != "new.example.com"
    assert (
        first.replaced("other.example.org 203.0.113.10 k8s.io/v1")
        == "other.example.org 203.0.113.10 k8s.io/v1"
    )
    assert first.replaced("*.example.com").startswith("*.h-")


def test_without_nodeagents_own_hosts_lines_none_are_taken() -> None:
    assert own_block("127.0.0.1 localhost\n") == ""
