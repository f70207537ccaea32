"""`nodeagent bundle`: one archive for a bug report."""

import io
import os
import platform
import secrets
import tarfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click

from nodeagent import __version__
from nodeagent.cli.command_options import connect, kubeconfig_option, option
from nodeagent.cli.fleet import fleet_document, namespace_option, timeout_option
from nodeagent.cli.logs import masked
from nodeagent.cli.report import encode
from nodeagent.cli.terminal import show
from nodeagent.errors import NodeagentError, one_line
from nodeagent.fleet.asking import Asking, ask_all, worst_first
from nodeagent.fleet.bundle import Piece, Pseudonyms, hostnames_in, of_cluster, of_node
from nodeagent.fleet.roster import read_roster

_WORST = 3
_LONGEST_SECONDS = 60.0
"""`nodeagent doctor` may take 45 s."""


@click.command(epilog="Example: nodeagent bundle --anonymize")
@kubeconfig_option
@namespace_option
@timeout_option
@option(
    "--node",
    "nodes",
    metavar="NAME",
    multiple=True,
    help="A node to include; repeatable; default: the worst three.",
)
@option("--anonymize", is_flag=True, help="Replace the hostnames of the cluster with pseudonyms.")
@option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Archive to write; default: nodeagent-bundle-TIME.tar.gz in the current directory.",
)
def bundle(  # noqa: PLR0913 - the options
    *,
    kubeconfig: Path | None,
    namespace: str,
    timeout: float,
    nodes: tuple[str, ...],
    anonymize: bool,
    output: Path | None,
) -> int:
    """Write one archive for a bug report, and list its contents.

    Nothing is sent anywhere.

    Exit code 0: written; it lists what could not be read. 1: an error; nothing was written.
    """
    file = output or Path(time.strftime("nodeagent-bundle-%Y%m%d-%H%M%S.tar.gz"))
    with connect(kubeconfig) as connection:
        asking = Asking(connection, namespace, timeout=timeout)
        pieces = [
            replace(one, text=masked(one.text), problem=masked(one.problem))
            for one in _collect(asking, nodes, anonymize=anonymize)
        ]
    if anonymize:
        replaced = Pseudonyms(hostnames_in(one.text for one in pieces), secrets.token_bytes(32)).replaced
        pieces = [
            replace(one, path=replaced(one.path), text=replaced(one.text), problem=replaced(one.problem))
            for one in pieces
        ]
    contents = _contents(pieces, anonymize=anonymize)
    _write(
        file,
        [("CONTENTS.txt", "\n".join(contents) + "\n"), *((one.path, one.text) for one in pieces if one.text)],
    )
    show([*contents, "", f"{file}: written"])
    return 0


def _collect(asking: Asking, nodes: tuple[str, ...], *, anonymize: bool) -> Iterable[Piece]:
    seats = {seat.node: seat for seat in read_roster(asking.connection, asking.namespace)}
    unknown = [node for node in nodes if node not in seats]
    if unknown:
        raise NodeagentError(
            f"--node {unknown[0]}: no node of that name has, or should have, a pod of nodeagent"
        )
    rows = worst_first(ask_all(asking, seats.values()))
    about = f"nodeagent {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
    yield Piece("about.txt", about)
    yield Piece("fleet.json", encode(fleet_document(rows)))
    yield from of_cluster(asking, only_decoded=anonymize)
    chosen = nodes or tuple(row.node for row in rows if row.pod)[:_WORST]
    patient = replace(asking, timeout=max(asking.timeout, _LONGEST_SECONDS))
    for node in chosen:
        yield from of_node(patient, seats[node])


def _contents(pieces: Iterable[Piece], *, anonymize: bool) -> list[str]:
    """Return what the archive holds, and what a reader of it learns."""
    lines = ["This archive contains:"]
    missing = []
    for piece in pieces:
        if piece.problem:
            missing.append(f"  {piece.path}: {one_line(piece.problem)}")
        elif piece.text:
            lines.append(f"  {piece.path} ({len(piece.text.encode())} bytes)")
    lines += ["", "Not available:", *missing] if missing else []
    names = "hostnames are readable (--anonymize replaces them)"
    if anonymize:
        names = "hostnames of objects are pseudonyms, as are those elsewhere with the same last two labels"
    annotations = "annotations about PROXY" if anonymize else "annotations, header values of Routes"
    return [
        *lines,
        "",
        "It contains no Secret, no token, no line of /etc/hosts except nodeagent's own, and no variable of",
        "containers except nodeagent's own. What looks like a password or a token elsewhere is masked.",
        f"In it, {names};",
        f"addresses, names of nodes and of objects, and {annotations} are readable. So are names of one",
        "label in logs. Nothing was sent anywhere: check it before you share it.",
    ]


def _write(file: Path, members: Iterable[tuple[str, str]]) -> None:
    """Write the archive, readable by this user alone; a file that exists is left unchanged."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            for path, text in members:
                data = text.encode("utf-8", "backslashreplace")
                info = tarfile.TarInfo(f"{file.name.removesuffix('.tar.gz')}/{path}")
                info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
                archive.addfile(info, io.BytesIO(data))
    except OSError as error:
        raise NodeagentError(f"{file}: can't be written: {error.strerror}; give another --output") from error
