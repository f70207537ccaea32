"""Settings for mkdocs beyond mkdocs.yml: pages made from code, and links to files outside of docs/.

The pages below reference/ are made at each build, so that they can't differ from the code. A link to a file
of the tree leads to its public home where that is known (REPOSITORY_URL); elsewhere the file is named. A link
to a file that does not exist is left as it is, and fails the build.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from mkdocs.structure.files import File

from nodeagent.agent.metrics import AgentMetrics
from nodeagent.cli.doctor import DoctorDocument
from nodeagent.cli.main import nodeagent
from nodeagent.cli.report import Document
from release.schemas import config_schema, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_CHART_README = ROOT / "charts" / "nodeagent" / "README.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every decision into the navigation."""
    directory = Path(config.docs_dir) / "decisions"
    pages = ["decisions/README.md", *(f"decisions/{path.name}" for path in sorted(directory.glob("0*.md")))]
    for part in config.nav or []:
        for entries in part.values():
            for entry in entries if isinstance(entries, list) else []:
                if entry.get("Decisions"):
                    entry["Decisions"] = pages
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference pages."""
    for name, text in reference_pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Replace links that lead out of docs/."""
    directory = (Path(config.docs_dir) / page.file.src_uri).parent

    def replaced(link: re.Match[str]) -> str:
        target = (directory / link[2]).resolve()
        if "://" in link[2] or target.is_relative_to(config.docs_dir) or not target.exists():
            return link[0]
        path = target.relative_to(ROOT)
        return (
            f"[{link[1]}]({config.repo_url}/blob/HEAD/{path}{link[3] or ''})" if config.repo_url else link[1]
        )

    return _LINK.sub(replaced, markdown)


def reference_pages() -> dict[str, str]:
    """Return the Markdown of the pages that are made from code, by name."""
    head = "Made from the code at each build.\n\n"
    return {
        "commands": f"# Commands\n\n{head}{''.join(_commands(nodeagent, 'nodeagent'))}",
        "configuration": (
            f"# Configuration file\n\n{head}What the options are for: [configuration](../configuration.md). "
            f"The [JSON Schema](../schema/config-v1.json).\n\n{''.join(_options(config_schema(), ''))}"
        ),
        "helm": _CHART_README.read_text("utf-8")
        .replace("# nodeagent\n", "# Helm values\n", 1)
        .replace("](../../docs/", "](../"),
        "report": (
            f"# Output of plan and status\n\n{head}`nodeagent plan -o json` and `status -o json`; the "
            f"[JSON Schema](../schema/report-v1.json).\n\n{''.join(_types(schema_of(Document)))}"
        ),
        "doctor": (
            f"# Output of doctor\n\n{head}`nodeagent doctor -o json`; the "
            f"[JSON Schema](../schema/doctor-v1.json).\n\n{''.join(_types(schema_of(DoctorDocument)))}"
        ),
        "metrics": f"# Metrics\n\n{head}Labels and health pages: [metrics](../runbook.md).\n\n{_metrics()}",
    }


def _commands(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[str]:
    with click.Context(command, parent, name, terminal_width=90, **command.context_settings) as context:
        yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n\n"
    if isinstance(command, click.Group):
        for inner_name in command.list_commands(context):
            if inner := command.get_command(context, inner_name):
                yield from _commands(inner, inner_name, context)


def _options(section: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, option in section["properties"].items():
        if "properties" not in option:
            continue
        yield f"## {path}{name}\n\n{option['description']}\n\n"
        yield "| option | type | default | |\n|---|---|---|---|\n"
        for key, found in option["properties"].items():
            default = f"`{json.dumps(found['default'])}`" if "default" in found else ""
            text = _cell(found.get("description", ""))
            yield f"| `{key}` | {_kind(found)} | {default} | {text} |\n"
        yield "\n"


def _types(document: Mapping[str, Any]) -> Iterator[str]:
    for name, found in document["$defs"].items():
        yield f"## {name}\n\n{found.get('description', '')}\n\n| field | type |\n|---|---|\n"
        for key, field in found.get("properties", {}).items():
            yield f"| `{key}` | {_kind(field)} |\n"
        yield "\n"


def _kind(found: Mapping[str, Any]) -> str:
    """Return a type of a JSON Schema in words."""
    if "$ref" in found:
        name = found["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in found:
        return " or ".join(_kind(one) for one in found["anyOf"])
    if "enum" in found:
        return ", ".join(f"`{value}`" for value in found["enum"] if value is not None)
    kinds = found.get("type", "any")
    names = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    if names == ["array"]:
        return f"list of {_kind(found['items'])}"
    if names == ["object"] and isinstance(found.get("additionalProperties"), dict):
        return f"map to {_kind(found['additionalProperties'])}"
    return " or ".join(names)


def _metrics() -> str:
    described = re.findall(
        r"^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)$", AgentMetrics().exposition().decode(), re.MULTILINE
    )
    rows = (f"| `{name}` | {kind} | {_cell(text)} |\n" for name, text, kind in described)
    return f"| metric | type | |\n|---|---|---|\n{''.join(rows)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
