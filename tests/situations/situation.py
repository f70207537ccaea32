"""A situation: a folder with a cluster, and what nodeagent answers there, in codes and values."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import dns.rdatatype
import msgspec
import yaml
from msgspec import Struct

from nodeagent.cli.main import run
from nodeagent.cli.report import edit_lines
from nodeagent.components.node import ActualState, build_components
from nodeagent.config.options import Config
from nodeagent.config.reading import read_config
from nodeagent.coredns.coredns_reconciler import decide_once
from nodeagent.errors import NodeagentError
from nodeagent.model.addresses import Endpoint, sort_key
from nodeagent.model.decisions import NameDecision
from nodeagent.model.facts import DnsAnswer, Facts
from nodeagent.plan.planner import plan
from nodeagent.sources.kubernetes.connection import connect
from nodeagent.sources.manifests import read_manifests
from nodeagent.sources.node import with_hosts_file
from tests.apiserver import ApiServer
from tests.apiserver.objects import objects_under
from tests.dns.made_up_server import MadeUpServer, Message, Transport, answer
from tests.plan.made_up import dns_answer, endpoint, interface_address

SITUATIONS = Path(__file__).parent
SENTENCES = SITUATIONS / "sentences.md"
Question = Literal["plan", "plan --adopt", "doctor", "coredns plan", "coredns plan --adopt"]
_HOSTS = b"127.0.0.1 localhost\n"
_ANYWHERE = (ip_address("0.0.0.0"), ip_address("::"))
_NAMED = re.compile(
    r"docs/[\w-]+\.md|doctor --policy|[\w-]+-controller-manager|[a-z][\w.-]*\.[a-z]+/[\w.-]+(?==)"
)
"""What a fix names that a person could look up: a page, a command, a controller, an annotation to set."""


class Answer(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What a command says, in codes and values. What is empty is left out, and must be empty."""

    exit_code: int | None = None
    """Of `doctor` and `coredns plan`."""
    load_balancers: dict[str, str] = {}
    """`served Annotated`, or the doctor's code, by namespace and name."""
    names: dict[str, str] = {}
    """`served Verified`, by hostname; with the claiming object behind it, if several claim it."""
    listeners: list[str] = []
    """`169.254.66.112:443 -> 10.96.7.1:443 v1`."""
    redirects: list[str] = []
    """`203.0.113.10:443 -> 169.254.66.112:443`."""
    pods: list[str] = []
    """The ranges whose pods are redirected."""
    hosts: list[str] = []
    edits: dict[str, list[str]] = {}
    """Each ConfigMap of CoreDNS's that changes, with the lines that leave it."""
    unreadable: list[str] = []
    """The objects that can't be used."""
    fixes: dict[str, list[str]] = {}
    """What the fix names, in its order; only for the subjects that are written down."""
    says: list[str] = []
    """Each is somewhere in reasons, notes and fixes: names of options, annotations, programs, objects."""
    never_says: list[str] = []
    wrong: str = ""
    """What is wrong today: the test then must fail; remove this line with the fault."""


class NodeFile(Struct, rename="camel", forbid_unknown_fields=True):
    """`node.yaml`: facts of the node, in the shortest form that a person can read. All may be absent."""

    node_name: str = ""
    """The first Node's of the manifests, if none is given."""
    node_names: list[str] = []
    api_servers: list[str] = []
    """`192.0.2.5:443` or `[2001:db8::5]:443`."""
    api_server_names: list[str] = []
    addresses: list[str] = []
    """`198.51.100.11/24 on eth0`; nodeagent's own relay addresses end in `, ours`."""
    taken_ports: list[int] = []
    short_circuited: list[str] = []
    """Addresses that the node's own Service rules catch."""
    ipv6_off: str = ""
    """What switches IPv6 off on the node."""

    def facts(self, dns: Mapping[str, DnsAnswer]) -> Facts:
        return Facts(
            node_name=self.node_name,
            node_names=frozenset({self.node_name, *self.node_names}),
            addresses=tuple(interface_address(text) for text in self.addresses),
            api_servers=frozenset(map(endpoint, self.api_servers)),
            api_server_names=frozenset(self.api_server_names),
            port_holders={Endpoint(anywhere, port): 0 for anywhere in _ANYWHERE for port in self.taken_ports},
            short_circuited=frozenset(map(ip_address, self.short_circuited)),
            ipv6_off=self.ipv6_off,
            dns=dns,
        )


class Said(NamedTuple):
    """An answer, the sentence of each code in it, and all of its text."""

    answer: Answer
    sentences: Sequence[tuple[str, str]]
    text: str


@dataclass(frozen=True)
class Situation:
    """One folder. `directory` is for what the commands need on a disk."""

    folder: Path
    directory: Path

    @cached_property
    def expected(self) -> dict[Question, Answer]:
        return msgspec.convert(_yaml(self.folder / "expected.yaml"), dict[Question, Answer])

    def answer(self, question: Question) -> Said:
        command, _, option = question.partition(" --")
        match command:
            case "doctor":
                return self.doctor()
            case "coredns plan":
                return self._coredns(adopt=bool(option))
            case _:
                return self._plan(adopt=bool(option))

    def _plan(self, *, adopt: bool) -> Said:
        config = self._config()
        known = {name: dns_answer(value) for name, value in self._dns.items() if value}
        facts = self.node.facts(known)
        actual = ActualState(build_components(config, adopt=adopt))
        facts = with_hosts_file(facts, config, actual, adopt=adopt)
        manifests = self.folder / "manifests"
        snapshot = read_manifests(manifests, facts.node_name, config.relay.existing_service)
        desired = plan(snapshot, facts, config)
        if unanswered := set(desired.questions) - self._dns.keys():  # of these, a real DNS says so
            absent = {name: dns_answer("nxdomain") for name in unanswered} if self._dns else {}
            desired = plan(snapshot, replace(facts, dns=known | absent), config)
        decisions = desired.load_balancers
        made = Answer(
            load_balancers={each.load_balancer.path: f"{each.status} {each.code}" for each in decisions},
            names=_names(desired.names),
            listeners=[f"{each.bind} -> {each.server} {each.proxy or 'plain'}" for each in desired.listeners],
            redirects=[f"{each.match} -> {each.to}" for each in desired.dnat.redirects],
            pods=[str(network) for network in desired.dnat.pods],
            hosts=[
                f"{line.address} {line.name}"
                for line in sorted(desired.hosts, key=lambda line: (*sort_key(line.address), line.name))
            ],
            unreadable=[Path(entry.where).name for entry in desired.unreadable],
        )
        notes = [*desired.remarks, *(remark for each in decisions for remark in each.remarks)]
        notes += [entry.reason for entry in desired.unreadable]
        return _said(made, [(each.code, each.reason) for each in (*decisions, *desired.names)], notes)

    def doctor(self, *options: str) -> Said:
        """Ask the doctor off the nodes."""
        printed = StringIO()
        with MadeUpServer(self._reply) as server, redirect_stdout(printed):
            self._config(server.endpoint)
            where = ["--from", "nowhere", "--manifests", str(self.folder / "manifests")]
            code = run(["doctor", *where, "--config", str(self._config_file), "-o", "json", *options])
        findings = json.loads(printed.getvalue())["findings"]
        balancers = [each for each in findings if each["check"] == "load-balancer"]
        made = Answer(
            exit_code=code,
            load_balancers={each["subject"]: each["code"] for each in balancers},
            unreadable=[each["code"] for each in findings if each["check"] == "objects"],
            fixes={
                each["subject"]: named
                for each in balancers
                if (named := list(dict.fromkeys(_NAMED.findall("\n".join(each["remedy"])))))
            },
        )
        sentences = [(each["code"], "\n".join((each["seen"], *each["remedy"]))) for each in balancers]
        return Said(made, sentences, printed.getvalue())

    def _coredns(self, *, adopt: bool) -> Said:
        with MadeUpServer(self._reply) as dns_server, ApiServer() as api:
            config = self._config(dns_server.endpoint)
            for each in objects_under(self.folder / "manifests"):
                api.store.create(each)
            try:
                with connect(api.write_kubeconfig(self.directory / "kubeconfig")) as connection:
                    decided = decide_once(connection, self.node.node_name, config, adopt=adopt)
            except NodeagentError as error:
                return Said(Answer(exit_code=1), (), str(error))
        edits = decided.edits
        changed: dict[str, list[str]] = {}
        for edit in edits.pending:
            lines = [line[1:].strip() for line in edit_lines(edit)[2:] if line.startswith("-")]
            changed.setdefault(edit.config_map, []).extend(lines)
        made = Answer(
            exit_code=2 if edits.pending else 0,
            names=_names(edits.decisions),
            edits=changed,
            unreadable=[entry.where for entry in decided.desired.unreadable],
        )
        notes = [*decided.desired.remarks, *edits.remarks, *(edit.after or "" for edit in edits.pending)]
        return _said(made, [(each.code, each.reason) for each in edits.decisions], notes)

    @cached_property
    def _dns(self) -> Mapping[str, list[str] | str | None]:
        file = self.folder / "dns.json"
        found: Mapping[str, list[str] | str | None] = json.loads(file.read_bytes()) if file.exists() else {}
        return found

    @cached_property
    def node(self) -> NodeFile:
        given = _yaml(self.folder / "node.yaml")
        found = (each for each in objects_under(self.folder / "manifests") if each["kind"] == "Node")
        node_name = next((each["metadata"]["name"] for each in found), "n1")
        return msgspec.convert({"nodeName": node_name, **given}, NodeFile)

    @property
    def _config_file(self) -> Path:
        return self.directory / "nodeagent.yaml"

    def _config(self, dns_server: Endpoint | None = None) -> Config:
        config = _yaml(self.folder / "nodeagent.yaml")
        hosts_file = self.directory / "hosts"
        given = self.folder / "hosts"
        hosts_file.write_bytes(given.read_bytes() if given.exists() else _HOSTS)
        servers = {"dnsServers": [str(dns_server)]} if dns_server else {}
        config["hosts"] = {**config.get("hosts", {}), "file": str(hosts_file), **servers}
        config["relay"] = {**config.get("relay", {}), "runDir": str(self.directory / "run")}
        self._config_file.write_text(yaml.safe_dump(config), encoding="utf-8")
        return read_config(self._config_file)

    def _reply(self, query: Message, _: Transport) -> Iterable[bytes]:
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True).lower()
        known = self._dns.get(name, self._dns.get(f"*.{name.partition('.')[2]}", "nxdomain"))
        if not isinstance(known, list):
            return (
                [answer(query, rcode=(known or "servfail").upper()).to_wire()] if known != "timeout" else []
            )
        kind = dns.rdatatype.to_text(question.rdtype)
        found = [each for each in known if kind == ("AAAA" if ":" in each else "A")]
        return [answer(query, *(f"{question.name} 60 {kind} {each}" for each in found)).to_wire()]


def situations() -> list[Path]:
    return sorted(file.parent for file in SITUATIONS.glob("*/manifests"))


def write_down(situation: Situation) -> None:
    """Make what is answered now what is expected, but for what `says`, `fixes` and `wrong` say."""
    answers: dict[Question, Answer] = {}
    for question, before in (situation.expected or {"plan": Answer(), "doctor": Answer()}).items():
        now = situation.answer(question).answer
        now = msgspec.structs.replace(now, says=before.says, never_says=before.never_says, fixes=before.fixes)
        answers[question] = before if before.wrong else now
    text = yaml.safe_dump(msgspec.to_builtins(answers), sort_keys=False, allow_unicode=True, width=110)
    (situation.folder / "expected.yaml").write_text(text, encoding="utf-8")


def sentences() -> str:
    """Return the page with a sentence of each code, the shortest of all, and what to do after it."""
    found: dict[tuple[str, str], str] = {}
    for folder in situations():
        with TemporaryDirectory() as directory:
            situation = Situation(folder, Path(directory))
            for question, right in situation.expected.items():
                for code, sentence in () if right.wrong else situation.answer(question).sentences:
                    key = ("doctor" if question.startswith("doctor") else "plan", code)
                    text = sentence.replace(directory, "/etc")
                    found[key] = min(found.get(key, text), text, key=lambda text: (len(text), text))
    lines = ["# The sentence of each code", "", "`python -m tests.situations` writes this page."]
    for title in ("plan", "doctor"):
        lines += ["", f"## {title}", ""]
        lines += [
            f"- `{code}`: " + text.replace("\n", "\n  - ")
            for (command, code), text in sorted(found.items())
            if command == title
        ]
    return "\n".join(lines) + "\n"


def _said(answer: Answer, sentences: Sequence[tuple[str, str]], notes: Sequence[str]) -> Said:
    return Said(answer, sentences, "\n".join((*(text for _, text in sentences), *notes)))


def _yaml(file: Path) -> dict[str, Any]:
    return (yaml.load(file.read_text("utf-8"), yaml.CSafeLoader) or {}) if file.exists() else {}


def _names(decisions: Iterable[NameDecision]) -> dict[str, str]:
    decisions = list(decisions)
    twice = [each.name for each in decisions]
    return {
        f"{each.name}, {_claim(each)}"
        if twice.count(each.name) > 1
        else each.name: f"{each.status} {each.code}"
        for each in decisions
    }


def _claim(decision: NameDecision) -> str:
    """Return who claims it; and for which load balancer, if one object claims it for two."""
    other = decision.code == "OtherLoadBalancer" and decision.load_balancer
    return f"{decision.claimed_by} for {other.path}" if other else str(decision.claimed_by)
