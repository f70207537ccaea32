import os
import resource
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.apiserver import ApiServer
from tests.apiserver.containers import Ended
from tests.cli.command_line import Ask
from tests.fleet.simulated import NAMESPACE, UPTIME, Answer, Fleet, answering, status

_ANSWERS = {
    ("cat", "/etc/nodeagent/nodeagent.yaml"): Ended(0, b"hosts: {file: /host/etc/hosts}\n"),
    # Drifted: its exit code is a part of the answer.
    ("nodeagent", "status", "-o", "json"): Ended(2, b'{"overall": "drifted"}\n'),
    ("nodeagent", "doctor", "-o", "json"): Ended(0, b'{"sentence": "healthy"}\n'),
}


def _cluster(api: ApiServer, *names: str) -> Fleet:
    fleet = Fleet(api, 0)
    for name in names:
        document = answering(status(name))

        def program(command: Sequence[str], document: Answer = document) -> Ended:
            return _ANSWERS.get(tuple(command)) or document(command)

        fleet.add(name, program)
        api.containers.run(NAMESPACE, f"nodeagent-{name}", "agent", program, "started\n" * 3000)
        api.containers.run(NAMESPACE, fleet.set_relay(name), "relay", program, "forked\n")
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


def test_it_holds_documents_the_configuration_and_logs(api: ApiServer, ask: Ask, tmp_path: Path) -> None:
    _cluster(api, "node1", "node2")
    file = tmp_path / "report.tar.gz"
    reply = ask("bundle", "--node", "node1", "-o", str(file))
    assert (reply.exit_code, reply.stderr) == (0, "")
    assert file.stat().st_mode & 0o777 == 0o600
    members = _members(file)
    assert members.pop("CONTENTS.txt") in reply.stdout
    assert members.pop("fleet.json") == ask("fleet", "-o", "json").stdout
    assert members == {
        "nodes/node1/status.json": '{"overall": "drifted"}\n',
        "nodes/node1/doctor.json": '{"sentence": "healthy"}\n',
        "nodes/node1/nodeagent.yaml": "hosts: {file: /host/etc/hosts}\n",
        "nodes/node1/log-agent.txt": "started\n" * 2000,
        "nodes/node1/log-relay.txt": "forked\n",
    }
    assert not api.traffic.seen("*", "*/secrets*")


def test_the_worst_nodes_are_in_it_unless_some_are_named(api: ApiServer, ask: Ask, tmp_path: Path) -> None:
    fleet = _cluster(api, "node1", "node2", "node3", "node4", "node5")
    fleet.set_pod("node4", answering(status("node4", written_at=UPTIME - 1000)))
    file = tmp_path / "report.tar.gz"
    assert ask("bundle", "-o", str(file)).exit_code == 0
    members = _members(file)
    assert {path.split("/")[1] for path in members if path.startswith("nodes/")} == {
        "node1",
        "node2",
        "node4",
    }
    assert "nodes/node4/status.json: not available" in members["CONTENTS.txt"]
    known = "Nodes with one: node4, node1, node2, node3, node5"
    assert ask("bundle", "--node", "node9").stderr.endswith(f"{known}\n")
    fleet.add("node6", answering(status("node6")))
    assert ask("bundle", "--node", "node9").stderr.endswith(f"{known}, ...\n")


@contextmanager
def _files_up_to(size: int) -> Iterator[None]:
    """Let this process write no larger file, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_can_not_be_done_is_said_and_leaves_nothing(api: ApiServer, ask: Ask, tmp_path: Path) -> None:
    _cluster(api, "node1")
    api.containers.run(
        NAMESPACE, "nodeagent-node1", "agent", answering(status("node1")), f"{os.urandom(50_000).hex()}\n"
    )
    file = tmp_path / "report.tar.gz"
    reply = ask("bundle", "--node", "node9", "-o", str(file))
    assert (reply.exit_code, file.exists()) == (1, False)
    assert "--node node9: " in reply.stderr
    file.write_text("mine")
    reply = ask("bundle", "-o", str(file))
    assert (reply.exit_code, file.read_text()) == (1, "mine")
    assert "File exists" in reply.stderr
    with _files_up_to(30_000):
        for _ in range(2):
            reply = ask("bundle", "-o", str(tmp_path / "small.tar.gz"))
            assert (reply.exit_code, (tmp_path / "small.tar.gz").exists()) == (1, False)
            assert "small.tar.gz: can't be written: File too large" in reply.stderr
    api.stop_listening()
    reply = ask("bundle", "-o", str(tmp_path / "other.tar.gz"))
    assert reply.exit_code == 1
    assert "Connection refused" in reply.stderr
    assert not (tmp_path / "other.tar.gz").exists()
