"""The pages for users: every command of the project that they show exists, with its options."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

import click
import msgspec
import pytest
import yaml

from nodeagent.cli.main import nodeagent
from nodeagent.config.options import Config
from nodeagent.model.decisions import served
from nodeagent.plan.identity.identify import Identity
from nodeagent.plan.identity.providers import PROVIDERS
from nodeagent.plan.identity.ways_out import ways_out
from release.docs_tables import first_way
from tests.plan.made_up import point, service

_ROOT = Path(__file__).parents[2]
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md"))]
_TARGETS = set(re.findall(r"^([a-z-]+):", (_ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

# Programs that are taken for a command without a prompt before it.
_BARE = frozenset(
    {"curl", "docker", "eval", "git", "helm", "kubectl", "make", "nft", "nodeagent", "python", "vagrant"}
)
_PROMPT = re.compile(r"[\w-]*[$#] ")
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every command in the code blocks of a page; of a pipe, its first command."""
    fenced = data = False
    for line in text.replace("\\\n", " ").split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            data = line.strip() in ("```yaml", "```json", "```toml")
            continue
        if data if fenced else not line.startswith("    "):
            continue
        prompt = _PROMPT.match(line.strip())
        try:
            words = shlex.split(line.strip()[prompt.end() if prompt else 0 :], comments=True)
        except ValueError:
            continue  # A text with a lone quote: output, or a picture.
        while words and _ASSIGNMENT.fullmatch(words[0]):
            del words[0]
        if words and (prompt or words[0].removeprefix(".venv/bin/") in _BARE):
            yield words[: words.index("|")] if "|" in words else words


def _shown(page: Path) -> list[tuple[str, list[str]]]:
    """Return the commands of a page: program and arguments; what `kubectl exec` runs is one of its own."""
    found = []
    for words in _commands(page.read_text("utf-8")):
        found.append((Path(words[0]).name, words[1:]))
        if "--" in words[1:-1]:
            inner = words[words.index("--", 1) + 1 :]
            found.append((Path(inner[0]).name, inner[1:]))
    return found


def _parsed(command: click.Command, words: list[str], context: click.Context | None = None) -> None:
    """Parse a command line as click does, without running it; raises UsageError for what does not exist."""
    context = click.Context(command, context, command.name, **command.context_settings)
    _, rest, _ = command.make_parser(context).parse_args(words)
    if isinstance(command, click.Group) and rest:
        name, inner, rest = command.resolve_command(context, rest)
        assert inner is not None, name
        _parsed(inner, rest, context)


@pytest.mark.parametrize("page", [*_PAGES, _ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_commands_of_the_project_exist_with_their_options(page: Path, pytestconfig: pytest.Config) -> None:
    markers = {re.split(r"\W", line)[0] for line in pytestconfig.getini("markers")}
    for program, words in _shown(page):
        if program == "nodeagent":
            _parsed(nodeagent, words)
        elif program == "make":
            assert {word for word in words if "=" not in word} <= _TARGETS | {".venv/.installed"}, words
        elif program == "python":
            assert words[0] == "-m", words
            assert find_spec(words[1]), words
            if words[1:3] == ["pytest", "-m"]:
                assert set(re.findall(r"\w+", words[3])) - {"not", "and", "or"} <= markers, words
            assert [word for word in words if word.startswith("tests/") and not (_ROOT / word).exists()] == []


# Other projects' programs that check their options before they show their help.
_OTHERS = ("cosign", "helm", "kubectl")
_INLINE = re.compile(rf"`((?:{'|'.join(_OTHERS)}) [^`]+)`")


def _of_others(page: Path) -> Iterator[tuple[str, ...]]:
    """Yield the commands of a page that call one of `_OTHERS`, those in a sentence included."""
    yield from ((program, *words) for program, words in _shown(page) if program in _OTHERS)
    for text in _INLINE.findall(page.read_text("utf-8")):
        yield tuple(takewhile(lambda word: word not in {"|", ">"}, shlex.split(text)))


@pytest.mark.parametrize("program", _OTHERS)
def test_commands_of_others_exist_with_their_options(program: str) -> None:
    """They do nothing: an unknown command or option is an error even with `--help`."""
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    failed = []
    for words in sorted({words for page in _PAGES for words in _of_others(page) if words[0] == program}):
        own = takewhile(lambda word: word != "--", words)
        done = subprocess.run([*own, "VALUE", "--help"], capture_output=True, text=True, check=False)
        if done.returncode and words[1] != "nodeagent":  # kubectl's plugin
            failed.append((words, done.stderr))
    assert failed == []


_POINTER = re.compile(r"(?<![\w/.-])((?:\.\./)*(?:[\w.-]+/)*[\w-]+\.md)(#[\w-]+)?(?:, \"([^\"]+)\")?")
_POINTING = (
    *("docs", "README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile"),
    *("daemonset", "charts", "nodeagent"),
)
# They cite pages of other projects.
_CITING = {"clouds.py", "nft_table.py", "providers.py"}


def _pointers() -> Iterator[tuple[Path, str, str, str]]:
    """Yield (file, page, anchor, heading) of each mention of a page in pages, manifests and programs."""
    files = [
        file
        for name in _POINTING
        for file in ([_ROOT / name] if (_ROOT / name).is_file() else (_ROOT / name).rglob("*"))
        if file.suffix in {".md", ".yaml", ".yml", ".tpl", ".txt", ".py", ".json", ""}
        and file.is_file()
        and file.name not in _CITING
    ]
    for file in files:
        for page, anchor, heading in _POINTER.findall(file.read_text("utf-8")):
            yield file, page, anchor.removeprefix("#"), heading


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_pointer_to_a_page_leads_there() -> None:
    dead = []
    count = 0
    for file, page, anchor, heading in _pointers():
        places = [base / page for base in (file.parent, _ROOT, _ROOT / "docs") if (base / page).is_file()]
        count += 1
        if not places:
            dead.append(f"{file.relative_to(_ROOT)}: {page}")
        elif places and anchor and anchor not in _anchors(places[0]):
            dead.append(f"{file.relative_to(_ROOT)}: {page}#{anchor}")
        elif places and heading and f"# {heading}\n" not in places[0].read_text("utf-8"):
            dead.append(f"{file.relative_to(_ROOT)}: {page}, {heading!r}")
    assert count > 100
    assert dead == []


def _folders(place: Path) -> list[str]:
    return [path.name for path in place.iterdir() if path.is_dir() and path.name.isidentifier()]


def test_every_path_and_option_on_a_page_exists() -> None:
    sections = {field.encode_name: field.type for field in msgspec.structs.fields(Config)}
    options = {
        f"{name}.{field.encode_name}"
        for name, section in sections.items()
        for field in msgspec.structs.fields(section)
    }
    values = yaml.safe_load((_ROOT / "charts/nodeagent/values.yaml").read_text("utf-8"))
    options |= {f"{name}.{key}" for name in sections.keys() & values.keys() for key in values[name]}
    folders = {*_folders(_ROOT), *_folders(_ROOT / "nodeagent")}
    wrong = []
    for page in [*_PAGES, *(_ROOT / "docs" / "decisions").glob("*.md"), _ROOT / "CONTRIBUTING.md"]:
        text = page.read_text("utf-8")
        paths = re.findall(rf"`((?:{'|'.join(folders)})/[\w./-]+)`", text)
        bases = (_ROOT, _ROOT / "nodeagent")
        wrong += [
            f"{page.name}: {path}" for path in paths if not any((base / path).exists() for base in bases)
        ]
        named = re.findall(rf"`(?:config\.)?((?:{'|'.join(sections)})\.\w+)", text)
        wrong += [f"{page.name}: {option}" for option in named if option not in options]
    assert wrong == []


def test_the_readme_says_what_the_doctor_says_for_each_provider() -> None:
    """Its table is made of the rows (test_docs_tables); the doctor's first way out is the row's."""
    balancer = service(points=(point("192.0.2.1"),))
    identity = Identity(served("Annotated", "said so"), proxy=True)
    for provider in PROVIDERS:
        way = ways_out(balancer, replace(identity, provider=provider))[0].way
        if provider.announces:
            assert way == "announced", provider.name
        elif not provider.publishes_hostname:
            assert way == first_way(provider), provider.name


def test_the_walk_of_a_load_balancers_address_stays_short() -> None:
    """From a watch event to nft's transaction, by the files that the page lists."""
    page = _ROOT / "docs" / "architecture.md"
    walk = page.read_text("utf-8").split("## The walk of one load balancer")[1].split("\n## ")[0]
    files = {(page.parent / link).resolve() for link in re.findall(r"\]\(([^)]+\.py)\)", walk)}
    assert len(files) <= 18
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) <= 4000
