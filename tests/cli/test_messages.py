"""What is said of bad input: what failed, on which object, what was left unchanged, what to do.

A snapshot of all of it, in messages.txt beside this file: read its diff as a user would, then write it again
by `WRITE_MESSAGES=1 pytest tests/cli/test_messages.py`. The cases are those of messages.yaml.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.cli import on_node
from tests.apiserver import ApiServer, faults
from tests.cases import cases_of
from tests.cli.command_line import CommandLine
from tests.fleet.simulated import Fleet
from tests.root import needs_root

pytestmark = needs_root
_SNAPSHOT = Path(__file__).with_name("messages.txt")
_HEAD = re.compile(r"^### (.*)$", re.MULTILINE)
_GROUPS: dict[str, dict[str, dict[str, Any]]] = cases_of(__file__, "messages.yaml")
_CASES = {case: (group, arranged) for group, cases in _GROUPS.items() for case, arranged in cases.items()}
_ANSWERS: dict[str, faults.RequestFault] = {
    "hang up": faults.Disconnect(),
    "a page": faults.html_page(),
    "half of one": faults.Answer(200, body=b'{"kind": "Da'),
    "never": faults.Hold(),
}


def _arrange(folder: Path, api: ApiServer, arranged: dict[str, Any]) -> None:
    """Do what a case of messages.yaml says, in its order."""
    for how in {"remove", "directory"} & arranged.keys():
        path = folder / arranged[how]
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if how == "directory":
            path.mkdir()
    for name, text in arranged.get("files", {}).items():
        (folder / name).write_text(text, arranged.get("encoding", "utf-8"))
    if (parts := arranged.get("kubeconfig")) is not None:
        config = yaml.safe_load(api.write_kubeconfig(folder / "kubeconfig").read_text("utf-8"))
        config["users"][0]["user"] = parts.pop("user", {})
        config["clusters"][0]["cluster"] = parts.pop("cluster", config["clusters"][0]["cluster"])
        (folder / "kubeconfig").write_text(yaml.safe_dump(config | parts), encoding="utf-8")
    for kind in arranged.get("without", ()):
        api.store.replace_all(kind, ())
    if said := arranged.get("answers"):
        fault = faults.Answer(**said) if isinstance(said, dict) else _ANSWERS[said]
        api.faults.add(fault, path=arranged.get("path", "*"), times=None)
    if "stopped" in arranged:
        api.stop_listening()


@pytest.mark.parametrize("case", _CASES)
def test_the_messages_are_those_that_were_read(
    command_line: CommandLine, api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    Fleet(api, 2)
    group, arranged = _CASES[case]
    for name in ("apply_plan", "clean_up"):  # this is the machine's own network
        monkeypatch.setattr(on_node, name, pytest.fail)
    for name, value in arranged.get("environment", {}).items():
        monkeypatch.setenv(name, value)
    here = json.dumps(arranged).replace("DIR", str(tmp_path)).replace("PORT", str(api.port))
    _arrange(tmp_path, api, json.loads(here))
    before = _files(tmp_path)
    said = ""
    for command in arranged["run"]:
        answer = command_line.bare(*_words(command_line, tmp_path, group, command))
        text = _shown(f"{answer.stdout}{answer.stderr}", tmp_path, api)
        said += f"$ nodeagent {command}\n{text}[{answer.exit_code}]\n\n"
    assert _files(tmp_path) == before
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


def _words(command_line: CommandLine, folder: Path, group: str, command: str) -> list[str]:
    """The command line; for `options`, as it is."""
    name = command.partition(" ")[0]
    config, kubeconfig = ["--config", str(command_line.config)], ["--kubeconfig", str(folder / "kubeconfig")]
    options = {
        **dict.fromkeys(("plan", "apply", "doctor", "status"), command_line.options),
        "cleanup": config,
        **{each: [*config, *kubeconfig] for each in ("uninstall", "coredns")},
        **dict.fromkeys(("fleet", "bundle"), kubeconfig),
    }.get(name, [])
    if group == "online" and name in {"apply", "status", "doctor"}:
        options = ["--node", "n0", *kubeconfig, *config]
    return [*command.split(), *(options if group != "options" else [])]


def _shown(text: str, folder: Path, api: ApiServer) -> str:
    for found, shown in ((str(folder), "DIR"), (f":{api.port}", ":PORT"), (f"port={api.port}", "port=PORT")):
        text = text.replace(found, shown)
    if "Not usable" in text:  # the rest is the plan
        unusable = " ".join(text[text.index("Not usable") :].partition("\n\n")[0].split())
        text = unusable.replace("usable", "usable\n ", 1) + "\n..." + text[text.rindex("\nnode ") :]
    text = re.sub(r"nodeagent-bundle-[0-9-]+", "nodeagent-bundle-TIME", text)
    return re.sub(r"process \d+", "process N", text)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
