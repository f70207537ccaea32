"""What a bug report needs from the cluster and from chosen nodes, with pseudonyms for hostnames on request.

EFFECTS: runs programs in pods.
"""

import hmac
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct

from nodeagent.agent.status_file import IN_POD
from nodeagent.components.dnat.xt_layout import PREFIX
from nodeagent.components.hosts.block import BEGIN, END
from nodeagent.config.options import Config
from nodeagent.config.reading import parse_config
from nodeagent.errors import ConfigError, NodeagentError
from nodeagent.fleet.asking import Asking
from nodeagent.fleet.roster import AGENT, APP, RELAY, Seat
from nodeagent.model.objects import EXCLUDE, PROXY_PROTOCOL
from nodeagent.plan.detection.providers import PROVIDERS
from nodeagent.sources.kubernetes.discovery import discover
from nodeagent.sources.kubernetes.pod_exec import Container, execute
from nodeagent.sources.kubernetes.resources import INGRESS_CLASSES, INGRESSES, NODES, SERVICES
from nodeagent.sources.objects.decoding import LAST_APPLIED, DecodingError
from nodeagent.typed_values import from_json

_CONFIG_FILE = "/etc/nodeagent/nodeagent.yaml"
_HAPROXY_DIR = "/run/nodeagent-relay"
_METRICS = """
import os, sys, urllib.request
address = os.environ.get("NODEAGENT_TELEMETRY_LISTEN") or sys.argv[1]
print(urllib.request.urlopen(f"http://{address}/metrics", timeout=5).read().decode(), end="")
"""
"""In an upgrade, the node's older agent may be the one that answers."""
_LOG_LINES = 2000
_LIMIT = 16 << 20
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


_PROXY_ANNOTATIONS = (
    PROXY_PROTOCOL,
    EXCLUDE,
    *(switch.key.partition("{port}")[0] for provider in PROVIDERS for switch in provider.switches),
)
Decode = Callable[[bytes], object]


class _List(Struct):
    items: list[msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Piece:
    """One file of the bundle: its path in it, its text, and why there is none or why it is incomplete."""

    path: str
    text: str = ""
    problem: str = ""


def of_cluster(asking: Asking, *, only_decoded: bool = False) -> Iterator[Piece]:
    """Yield the cluster's version and the objects on which decisions depend; no Secret is requested.

    If `only_decoded`, such an object has only the fields that nodeagent itself reads, and of its annotations
    those that say whether a load balancer sends PROXY: all else might hold hostnames and secrets of any form.
    """
    in_namespace = f"/api/v1/namespaces/{asking.namespace}"
    rows = [SERVICES, INGRESSES, INGRESS_CLASSES, NODES]
    try:
        rows += discover(asking.connection)
    except NodeagentError as error:
        yield Piece("cluster/optional-kinds.json", problem=str(error))
    paths: dict[str, tuple[str, Mapping[str, str]]] = {
        "version": ("/version", {}),
        **{row.name: (row.path, row.selector) for row in rows},
        "nodeagent-daemonset": (f"/apis/apps/v1/namespaces/{asking.namespace}/daemonsets/{APP}", {}),
        "nodeagent-pods": (f"{in_namespace}/pods", {"labelSelector": f"app.kubernetes.io/name={APP}"}),
        "nodeagent-configmap": (f"{in_namespace}/configmaps/{APP}", {}),
        "nodeagent-events": (f"{in_namespace}/events", {}),
    }
    decoders = {row.name: row.decode for row in rows}
    for name, (path, query) in paths.items():
        decode = decoders.get(name) if only_decoded else None
        reader = partial(_decoded, decode) if decode else _objects
        yield _piece(f"cluster/{_UNSAFE.sub('_', name)}.json", partial(reader, asking, path, query))


def of_node(asking: Asking, seat: Seat) -> Iterator[Piece]:
    """Yield what a node's pod reports, and the logs of its containers."""
    if seat.pod is None:
        return
    pod = seat.pod.name
    folder = f"nodes/{_UNSAFE.sub('_', seat.node).lstrip('.')}"
    for container in (AGENT, RELAY):
        yield _piece(f"{folder}/log-{container}.txt", partial(_log, asking, pod, container))

    def run(*command: str) -> str:
        done = execute(
            asking.connection, Container(asking.namespace, pod, AGENT), command, asking.timeout, _LIMIT
        )
        text = done.stdout.decode("utf-8", "replace")
        # Exit codes of nodeagent's own commands are answers; without any output they are failures.
        if done.exit_code and not text:
            raise NodeagentError(f"{' '.join(command)}: {done.stderr.strip()[-500:] or done.failure}")
        return text

    configuration = _piece(f"{folder}/nodeagent.yaml", lambda: run("cat", _CONFIG_FILE))
    yield configuration
    config = _config(configuration.text)
    haproxy_dir = PurePosixPath(config.relay.haproxy_dir or _HAPROXY_DIR)
    for name, reader in (
        ("status.json", lambda: run("nodeagent", "status", "-o", "json")),
        ("doctor.json", lambda: run("nodeagent", "doctor", "-o", "json")),
        ("agent-status.txt", lambda: run("cat", str(IN_POD))),
        ("metrics.txt", lambda: run("python3", "-c", _METRICS, str(config.telemetry.listen))),
        ("haproxy.cfg", lambda: run("cat", str(haproxy_dir / "haproxy.cfg"))),
        ("nftables.txt", lambda: run("nft", "list", "table", "inet", "nodeagent")),
        ("iptables.txt", lambda: own_rules(run("iptables-legacy-save"))),
        ("ip6tables.txt", lambda: own_rules(run("ip6tables-legacy-save"))),
        ("hosts-block.txt", lambda: own_block(run("cat", str(config.hosts.file)))),
    ):
        yield _piece(f"{folder}/{name}", reader)


def own_rules(text: str) -> str:
    """Return the lines of an iptables-save that name a chain of nodeagent's. Pure."""
    return "".join(line for line in text.splitlines(keepends=True) if PREFIX in line)


def own_block(text: str) -> str:
    """Return nodeagent's block of a hosts file, and nothing of the user's lines. Pure."""
    begin, end = text.find(BEGIN.decode()), text.rfind(END.decode())
    return text[begin : end + len(END)] + "\n" if 0 <= begin < end else ""


def _piece(path: str, read: Callable[[], str]) -> Piece:
    try:
        return Piece(path, read())
    except (NodeagentError, ValueError) as error:
        return Piece(path, problem=str(error))


def _config(text: str) -> Config:
    try:
        return parse_config(text, _CONFIG_FILE)
    except ConfigError:
        # For example, of another version: it is in the bundle, and most paths are the defaults.
        return Config()


def _log(asking: Asking, pod: str, container: str) -> str:
    path = f"/api/v1/namespaces/{asking.namespace}/pods/{pod}/log"
    query = {"container": container, "tailLines": str(_LOG_LINES), "timestamps": "true"}
    return asking.connection.get_text(path, query, asking.timeout, _LIMIT).decode("utf-8", "replace")


def _objects(asking: Asking, path: str, query: Mapping[str, str]) -> str:
    """Return an object or a list as JSON, indented, without parts that are repeated or may be confidential.

    managedFields and kubectl's copy repeat the object; a variable of a container may hold a password.
    """
    found: dict[str, Any] = json.loads(asking.connection.get_json(path, query))
    items: Sequence[Any] = found.get("items") or [found]
    for item in items:
        metadata = item.get("metadata") or {}
        metadata.pop("managedFields", None)
        (metadata.get("annotations") or {}).pop(LAST_APPLIED, None)
        spec = item.get("spec") or {}
        _hide_variables((spec.get("template") or {}).get("spec") or spec)
    return json.dumps(found, indent=1) + "\n"


def _decoded(decode: Decode, asking: Asking, path: str, query: Mapping[str, str]) -> str:
    """Return the objects of a list as nodeagent reads them, as JSON, indented."""
    found = from_json(asking.connection.get_json(path, query), _List)
    items = [_fields(decode, item) for item in found.items]
    return json.dumps({"decoded": [item for item in items if item is not None]}, indent=1) + "\n"


def _fields(decode: Decode, item: msgspec.Raw) -> Any:  # noqa: ANN401 - JSON
    try:
        found = msgspec.to_builtins(decode(bytes(item)), enc_hook=_plain)
    except DecodingError as error:
        return {"unreadable": str(error)}
    if isinstance(found, dict) and "annotations" in found:
        found["annotations"] = {
            key: value for key, value in found["annotations"].items() if key.startswith(_PROXY_ANNOTATIONS)
        }
    return found


def _plain(value: object) -> object:
    """Return what JSON can represent in place of a frozen mapping or an address."""
    return dict(value) if isinstance(value, Mapping) else str(value)


def _hide_variables(spec: Mapping[str, Any]) -> None:
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for variable in container.get("env") or ():
            if "value" in variable and not variable.get("name", "").startswith("NODEAGENT_"):
                variable["value"] = "[left out]"


_HOSTNAME = re.compile(r"(?<![\w.-])(?:\*\.)?(?:[A-Za-z0-9_](?:[\w-]*\w)?\.)+[A-Za-z][\w-]*\w(?![\w-])")
_OF_HOSTNAMES = frozenset({"host", "hosts", "hostname", "hostnames", "match"})
_PUBLIC = ("kubernetes.io", "k8s.io", "nodeagent.io", "x-k8s.io", "cluster.local", "svc", "local")
"""Never replaced: API groups and annotations, without which a report is useless."""


class Pseudonyms:
    """Replaces a hostname by the same pseudonym wherever it occurs; without the key, none can be guessed.

    Args:
        hostnames: those of the cluster. A name with the same last two labels is replaced as well:
            a hostname may occur only in a log.
        key: random, for one bundle.
    """

    def __init__(self, hostnames: Iterable[str], key: bytes) -> None:
        self._key = key
        self._zones = frozenset(filter(None, (_zone(name) for name in hostnames)))

    def replaced(self, text: str) -> str:
        """Return the text with each hostname of the cluster replaced: `h-0123456789.invalid`."""
        return _HOSTNAME.sub(self._one, text)

    def _one(self, match: re.Match[str]) -> str:
        name = match[0].removeprefix("*.").lower()
        if _zone(name) not in self._zones:
            return match[0]
        wildcard = "*." if match[0].startswith("*.") else ""
        return f"{wildcard}h-{hmac.new(self._key, name.encode(), 'sha256').hexdigest()[:10]}.invalid"


def hostnames_in(texts: Iterable[str]) -> set[str]:
    """Return the hostnames that JSON documents have in fields for hostnames. Pure."""
    found: set[str] = set()
    for text in texts:
        try:
            document = json.loads(text)
        except ValueError:
            continue
        found |= set(_walk(document, within=False))
    return found


def _walk(value: Any, *, within: bool) -> Iterator[str]:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        for key, inner in value.items():
            # The hostnames of `nodeagent status` are objects, too: {"names": [{"name": "site.example.com"}]}.
            if key == "names" and isinstance(inner, list):
                yield from (str(one["name"]) for one in inner if isinstance(one, dict) and "name" in one)
            yield from _walk(inner, within=key in _OF_HOSTNAMES)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, within=within)
    elif within and isinstance(value, str):
        yield from _HOSTNAME.findall(value)


def _zone(name: str) -> str:
    """Return the last two labels; empty for a name that is never replaced."""
    plain = name.removeprefix("*.").rstrip(".").lower()
    if any(plain == public or plain.endswith(f".{public}") for public in _PUBLIC):
        return ""
    return ".".join(plain.split(".")[-2:])
