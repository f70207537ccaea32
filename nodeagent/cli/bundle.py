"""`nodeagent bundle`: one archive for a bug report."""

import io
import os
import tarfile
import time
from itertools import product
from pathlib import Path

import click

from nodeagent.cli.command_options import connect, kubeconfig_option, option, seconds_option
from nodeagent.cli.fleet import fleet_document, namespace_option
from nodeagent.cli.report import encode
from nodeagent.cli.terminal import show
from nodeagent.errors import NodeagentError, one_line
from nodeagent.fleet import AGENT, RELAY, read_fleet
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.pod_exec import Container, execute

_WORST = 3
_LOG_LINES = 2000
_MOST_BYTES = 16 << 20
_COMMANDS = {
    "status.json": ("nodeagent", "status", "-o", "json"),
    "doctor.json": ("nodeagent", "doctor", "-o", "json"),
    "nodeagent.yaml": ("cat", "/etc/nodeagent/nodeagent.yaml"),
}
_LOGS = {f"log-{container}.txt": container for container in (AGENT, RELAY)}


@click.command(epilog="Example: nodeagent bundle --node node3")
@kubeconfig_option
@namespace_option
@seconds_option("--timeout", 1, 300, 60.0, "Time limit for each request; the doctor needs up to 45 s.")
@option("--node", "nodes", metavar="NAME", multiple=True, help="A node to include; default: the worst three.")
@option("--output", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Archive to write.")
def bundle(
    *, kubeconfig: Path | None, namespace: str, timeout: float, nodes: tuple[str, ...], output: Path | None
) -> int:
    """Write one archive for a bug report, and list its contents.

    It holds what `fleet`, `status` and `doctor` report, and the agents' configuration and logs. None of these
    contains a password or a token; hostnames, addresses and names of objects are readable. Nothing is sent.

    Exit code 0: written; it lists what could not be read. 1: an error; nothing was written.
    """
    file = output or Path(time.strftime("nodeagent-bundle-%Y%m%d-%H%M%S.tar.gz"))
    contents = ["This archive contains:"]
    members: dict[str, bytes] = {}
    with connect(kubeconfig) as connection:
        rows = read_fleet(connection, namespace, timeout)
        pods = {row.node: row.pod for row in rows if row.pod}
        if unknown := [node for node in nodes if node not in pods]:
            raise NodeagentError(f"--node {unknown[0]}: no node of that name has a pod of nodeagent")
        members["fleet.json"] = encode(fleet_document(rows)).encode()
        contents.append(f"  fleet.json ({len(members['fleet.json'])} bytes)")
        for node, name in product(nodes or list(pods)[:_WORST], (*_COMMANDS, *_LOGS)):
            path = f"nodes/{node}/{name}"
            try:
                members[path] = _read(connection, Container(namespace, pods[node], AGENT), name, timeout)
                contents.append(f"  {path} ({len(members[path])} bytes)")
            except NodeagentError as error:
                contents.append(f"  {path}: not available: {one_line(str(error))}")
    _write(file, {"CONTENTS.txt": "\n".join([*contents, ""]).encode(), **members})
    show([*contents, "", f"{file}: written"])
    return 0


def _read(connection: Connection, agent: Container, name: str, timeout: float) -> bytes:
    if name in _LOGS:
        path = f"/api/v1/namespaces/{agent.namespace}/pods/{agent.pod}/log"
        query = {"container": _LOGS[name], "tailLines": str(_LOG_LINES), "timestamps": "true"}
        return connection.get_text(path, query, timeout, _MOST_BYTES)
    command = _COMMANDS[name]
    done = execute(connection, agent, command, timeout, _MOST_BYTES)
    # Exit codes of nodeagent's own commands are answers; without any output they are failures.
    if done.exit_code and not done.stdout:
        raise NodeagentError(f"{' '.join(command)}: {done.stderr.strip()[-500:] or done.failure}")
    return done.stdout


def _write(file: Path, members: dict[str, bytes]) -> None:
    """Write the archive, readable by this user alone; a file that exists is left unchanged."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            for path, data in members.items():
                info = tarfile.TarInfo(f"{file.name.removesuffix('.tar.gz')}/{path}")
                info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
                archive.addfile(info, io.BytesIO(data))
    except OSError as error:
        raise NodeagentError(f"{file}: can't be written: {error.strerror}; give another --output") from error
