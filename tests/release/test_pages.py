"""The pages for users: their length, their sentences, and the commands that they show.

Every command of the project exists with its options. A test or the gate runs each command, or docs/support.md
says that no test runs it.
"""

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

import click
import pytest

from nodeagent.cli.main import nodeagent
from nodeagent.plan.detection.providers import PROVIDERS

_ROOT = Path(__file__).parents[2]
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md"))]
_TARGETS = set(re.findall(r"^([a-z-]+):", (_ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
_LONGEST_PAGE = 250
_LONGEST_SENTENCE = 25
"""Words, on average."""

# Their controllers publish no address if PROXY is on. aws-load-balancer-controller:
# controllers/service/service_controller.go:245; UpCloud's: loadbalancer.go:62; Civo's: README.md:40.
_BY_HOSTNAME = {"AWS", "UpCloud", "Civo"}

# Programs that are taken for a command without a prompt before it.
_BARE = frozenset(
    {"curl", "docker", "eval", "git", "helm", "kubectl", "make", "nft", "nodeagent", "python", "vagrant"}
)
_PROMPT = re.compile(r"[\w-]*[$#] ")
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
_UNTESTED = re.compile(r"## Commands that no test runs\n(.*?)\n## ", re.DOTALL)

# The test that runs a command with these options; some tests add one for their input, such as --kubeconfig.
_TESTS = {
    "ctr": "testbed/test_visit.py::test_what_is_printed_leads_into_the_world",
    "curl": "testbed/test_visit.py::test_what_is_printed_leads_into_the_world",
    "nodeagent completion fish": "cli/test_completion.py::test_each_shell_gets_its_script",
    "nodeagent apply --manifests --config": "endtoend/test_traffic.py::test_the_node_and_its_pods_are_served",
    "nodeagent bundle --node --anonymize": (
        "fleet/test_bundle.py::test_an_anonymous_bundle_has_pseudonyms_everywhere_and_only_what_nodeagent_reads"
    ),
    "nodeagent coredns cleanup --config": (
        "coredns/test_commands.py::test_cleanup_restores_byte_for_byte_and_twice_is_once"
    ),
    "nodeagent coredns plan --config": (
        "coredns/test_commands.py::test_plan_shows_a_diff_with_reasons_and_changes_nothing"
    ),
    "nodeagent doctor": "doctor/test_states.py::test_the_state_is_recognised",
    "nodeagent doctor --host": "doctor/test_document.py::test_off_a_node_the_objects_speak",
    "nodeagent doctor --kubeconfig --node": (
        "doctor/test_trust.py::test_the_doctor_prints_the_nodes_own_addresses_to_paste"
    ),
    "nodeagent doctor --policy": (
        "doctor/test_policy.py::test_the_command_prints_a_policy_for_the_clusters_services"
    ),
    "nodeagent doctor --pull": "doctor/test_states.py::test_the_state_is_recognised",
    "nodeagent fleet": "fleet/test_fleet.py::test_the_worst_come_first_each_with_its_reason",
    "nodeagent plan --manifests --config --node": "daemonset/test_image.py::test_a_plan_needs_no_root",
    "nodeagent plan --config --node": "daemon/test_drift.py::test_damage_is_repaired_within_a_second",
    "nodeagent run --config --node": "daemon/test_ending.py::test_a_restart_changes_nothing_on_the_node",
    "nodeagent status": "testbed/test_visit.py::test_what_is_printed_leads_into_the_world",
}


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


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_a_page_is_short_and_its_sentences_are(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.count("\n") <= _LONGEST_PAGE
    prose = re.sub(r"```.*?```|`[^`]*`", "x", text, flags=re.DOTALL)
    prose = "\n".join(line for line in prose.split("\n") if not line.startswith(("|", "#", "    ")))
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", re.sub(r"\]\([^)]*\)", "]", prose))
    sentences = [each for one in paragraphs for each in re.split(r"(?<=[.!?])\s+", one) if each.strip()]
    assert sum(len(each.split()) for each in sentences) <= _LONGEST_SENTENCE * len(sentences)


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


@pytest.mark.parametrize(("page", "names"), [("doctor.md", ("doctor",)), ("fleet.md", ("fleet", "bundle"))])
def test_a_table_of_options_names_those_that_exist(page: str, names: tuple[str, ...]) -> None:
    context = click.Context(nodeagent)
    commands = [nodeagent.get_command(context, name) for name in names]
    exist = {option for command in commands if command for one in command.params for option in one.opts}
    cells = re.findall(r"^\| (`-[^|]*) \|", (_ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE)
    named = set(re.findall(r"`(--?[\w-]+)", " ".join(cells)))
    assert named
    assert named <= exist


def _key(program: str, words: list[str]) -> str:
    """Return the name of a command: program, subcommand and options; of any other program, its name alone."""
    if program not in {"nodeagent", "make", "python"}:
        return program
    named = takewhile(re.compile(r"(-m|[a-z][\w.-]*)$").match, words)
    return " ".join([program, *named, *(word for word in words if word.startswith("--"))])


def _gate() -> set[str]:
    """Return the targets of the Makefile that `.ci/run` makes, as commands."""
    rules = dict(
        re.findall(r"^([a-z-]+):(.*\n(?:\t.*\n)*)", (_ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    )
    made: set[str] = set()
    new = set(
        re.findall(r"^(?:nice )?make ([a-z-]+)", (_ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)
    )
    while new:
        made |= new
        text = "\n".join(rules[target].replace("$(MAKE)", "make") for target in new)
        called = " ".join(re.findall(r"\bmake (.*)", text)).split()
        needed = " ".join(rules[target].split("\n", 1)[0].split("##")[0] for target in new).split()
        new = (set(called) | set(needed)) & rules.keys() - made
    return {f"make {target}" for target in made}


def test_the_commands_that_no_test_runs_are_listed() -> None:
    (listed,) = _UNTESTED.findall((_ROOT / "docs" / "support.md").read_text("utf-8"))
    shown = {_key(*one) for page in _PAGES for one in _shown(page)}
    assert set(re.findall(r"`([^`]+)`", listed)) == shown - _TESTS.keys() - _gate()


def test_each_test_that_runs_a_command_exists() -> None:
    for test in _TESTS.values():
        file, name = test.split("::")
        assert f"\ndef {name}(" in (_ROOT / "tests" / file).read_text("utf-8"), test


def test_each_command_with_a_test_is_on_a_page() -> None:
    assert _TESTS.keys() <= {_key(*one) for page in _PAGES for one in _shown(page)}


_POINTER = re.compile(r"(?<![\w/.-])((?:\.\./)*(?:[\w.-]+/)*[\w-]+\.md)(#[\w-]+)?(?:, \"([^\"]+)\")?")
_POINTING = (
    *("docs", "README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile"),
    *("daemonset", "charts", "nodeagent"),
)
# They cite pages of other projects.
_CITING = {"nft_script.py", "relaying.py", "providers.py"}


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
    """Return a page's anchors, as GitHub and mkdocs make them from its headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_pointer_to_a_page_leads_there() -> None:
    dead = []
    count = 0
    for file, page, anchor, heading in _pointers():
        places = [base / page for base in (file.parent, _ROOT, _ROOT / "docs") if (base / page).is_file()]
        count += 1
        if not places and not page.startswith("reference/"):
            dead.append(f"{file.relative_to(_ROOT)}: {page}")
        elif places and anchor and anchor not in _anchors(places[0]):
            dead.append(f"{file.relative_to(_ROOT)}: {page}#{anchor}")
        elif places and heading and f"# {heading}\n" not in places[0].read_text("utf-8"):
            dead.append(f"{file.relative_to(_ROOT)}: {page}, {heading!r}")
    assert count > 100
    assert dead == []


def test_nothing_advises_to_trust_pods() -> None:
    """A pod in a trusted range could claim any client address: pages, manifests and the chart agree."""
    for file in [*_PAGES, *(_ROOT / "daemonset").rglob("*.yaml"), *(_ROOT / "charts").rglob("*.md")]:
        for line in re.findall(r"[^.]*(?:trustedIPs|proxy-real-ip-cidr)[^.]*\.", file.read_text("utf-8")):
            assert not re.search(r"lists? the nodes and pods|add (?:the |a )?pods?\b", line), (file, line)


def test_the_readme_names_each_providers_shortest_fix() -> None:
    """As the doctor does: what the controller does by itself, then on request, then a hostname."""
    table = (_ROOT / "README.md").read_text("utf-8").split("| your provider |", 1)[1].split("\n\n", 1)[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    for provider in PROVIDERS:
        shown = provider.name.partition(" (")[0]
        (fix,) = [fix for names, fix in rows if re.search(rf"\b{shown}\b", names)]
        wanted = (
            "by itself"
            if provider.ip_mode and not provider.ip_mode_on_request
            else "one annotation asks"
            if provider.ip_mode_on_request
            else "one annotation publishes a hostname"
            if provider.hostname
            else "they publish a hostname"
            if shown in _BY_HOSTNAME
            else "nodeagent on the nodes"
        )
        assert wanted in fix, provider.name
