"""What of the ConfigMaps is to change so that CoreDNS answers what the plan serves. Pure."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nodeagent.config.options import Config
from nodeagent.coredns.corefile.answering import Answer, by_rewriting, by_templates
from nodeagent.coredns.corefile.managed import as_file, with_blocks, without_blocks
from nodeagent.coredns.corefile.own_lines import without_hairpin_proxy
from nodeagent.coredns.corefile.parsing import Block, Corefile, CorefileError, parse
from nodeagent.coredns.corefile.standing import standing_names
from nodeagent.coredns.fitting import CONFIG_MAP_BYTES, fit
from nodeagent.coredns.naming import Naming, Source, name
from nodeagent.coredns.ways import Way, choose, imported_sources, path_of
from nodeagent.model.desired import Desired, NameDecision
from nodeagent.plan.hostnames import covering

COREFILE = "Corefile"
"""The key that holds it, in every ConfigMap of a CoreDNS that is known."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the ConfigMaps hold now: their data by key. None for one that is not there."""

    main: Mapping[str, str]
    imported: Mapping[str, str] | None = None
    node_local: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """One key of one ConfigMap, before and after; None: the key is not there."""

    config_map: str
    key: str
    before: str | None
    after: str | None

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return self.before != self.after

    def diff(self) -> str:
        """A unified diff, for a person."""
        where = f"{self.config_map}/{self.key}"
        before, after = ((text or "").splitlines() for text in (self.before, self.after))
        lines = difflib.unified_diff(before, after, where, where, lineterm="")
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Edits:
    """All that is to change, in the order in which it is written, and why."""

    way: Way
    edits: tuple[Edit, ...]
    decisions: tuple[NameDecision, ...]
    remarks: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[Edit, ...]:
        """Those that change anything."""
        return tuple(edit for edit in self.edits if edit)


def decide(
    desired: Desired,
    standing: Standing,
    config: Config,
    *,
    adopt: bool,
    never: Iterable[str] = (),
) -> Edits:
    """Decides for all ConfigMaps. `never` are names that no wildcard may stand for: the API server's.

    Every edit that it gives parses, and differs from what stands in our own block and nowhere else (with
    `adopt`, in hairpin-proxy's lines too).

    Raises:
        CorefileError: a Corefile can't be edited; the text says which, where and why.
    """
    options = config.coredns
    path = path_of(config, options.config_map)
    with _about(path):
        user = _user_text(standing.main, adopt=adopt)
        corefile = parse(user)
    way = choose(corefile, config, importable=standing.imported is not None)
    sources = [Source(corefile), *imported_sources(corefile, standing.imported or {})]
    never = (*never, *config.hosts.exclude, config.hosts.cluster_domain)
    with _about(path):
        data = standing.main if way.key is None else standing.imported or {}
        place = _Place(corefile, data, way.key, user if way.key is None else "", config)
        naming = place.fitted(name(desired, sources, never=never, adopt=adopt))
        lines = _Lines(corefile, naming.answers, config)
        after = _edited(user, lines.of if way.key is None else lambda _: [])
    remarks = [*way.remarks]
    edits = [Edit(path, COREFILE, standing.main[COREFILE], after)]
    if standing.imported is not None:
        edits += _import_edits(standing.imported, way.key, lines, config)
    if standing.node_local is not None:
        try:
            edits.append(_node_local_edit(desired, standing.node_local, config, never, adopt=adopt))
        except CorefileError as error:
            remarks.append(str(error))
    return Edits(way, tuple(edits), naming.decisions, tuple(remarks))


def decide_removal(standing: Standing, config: Config) -> tuple[Edit, ...]:
    """The edits that take our block out of everything, every other byte staying as it is.

    Raises:
        CorefileError: a marker has lost its twin.
    """
    options = config.coredns
    edits: list[Edit] = []
    for config_map, data in (
        (options.config_map, standing.main),
        (options.import_config_map, standing.imported),
        (options.node_local_config_map, standing.node_local),
    ):
        for key, text in (data or {}).items():
            path = path_of(config, config_map)
            with _about(f"{path}/{key}"):
                rest = without_blocks(text)
            edits.append(Edit(path, key, text, text if rest == text else rest or None))
    return tuple(edit for edit in edits if edit)


class _Lines:
    """The lines for each server block of one Corefile."""

    def __init__(self, corefile: Corefile, answers: Sequence[Answer], config: Config) -> None:
        self._corefile = corefile
        self._answers = answers
        self._config = config

    def of(self, block: Block) -> list[str]:
        """A relay Service is found by its name where the cluster's names are known, else by its address."""
        relay, domain = self._config.relay, self._config.hosts.cluster_domain
        cluster = any(
            plugin.name == "kubernetes" and covering(domain, map(_bare, plugin.arguments))
            for plugin in self._corefile.plugins(block)
        )
        if relay.kind == "service" and cluster:
            service = f"{relay.service.name}.{relay.service.namespace}.svc.{domain}"
            return by_rewriting(self._answers, service)
        return by_templates(self._answers)

    def of_root(self) -> list[str]:
        """Those for the server block of `.`."""
        return self.of(self._corefile.roots[0])


def _bare(zone: str) -> str:
    return zone.lower().removesuffix(".")


def _import_edits(data: Mapping[str, str], key: str | None, lines: _Lines, config: Config) -> list[Edit]:
    """Our key as it shall be, and away with our block in any other one."""
    path = path_of(config, config.coredns.import_config_map)
    edits = []
    if key is not None:
        before = data.get(key)
        after = without_blocks(before or "") + as_file(lines.of_root())
        parse(f". {{\n{after}\n}}\n")
        edits.append(Edit(path, key, before, after or None))
    for other, text in data.items():
        if other != key and other.startswith("nodeagent."):
            edits.append(Edit(path, other, text, without_blocks(text) or None))
    return edits


def _node_local_edit(
    desired: Desired, data: Mapping[str, str], config: Config, never: Iterable[str], *, adopt: bool
) -> Edit:
    """NodeLocal DNSCache forwards names outside the cluster past CoreDNS: it has to know them, too."""
    path = path_of(config, config.coredns.node_local_config_map)
    with _about(path):
        user = _user_text(data, adopt=adopt)
        corefile = parse(user)
        place = _Place(corefile, data, None, user, config)
        naming = place.fitted(name(desired, [Source(corefile)], never=never, adopt=adopt))
        lines = _Lines(corefile, naming.answers, config)
        return Edit(path, COREFILE, data[COREFILE], _edited(user, lines.of))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a block goes: a Corefile (`key` is None, `user` the text without it), or a key of an import."""

    corefile: Corefile
    data: Mapping[str, str]
    key: str | None
    user: str
    config: Config

    def fitted(self, naming: Naming) -> Naming:
        """As much of it as there is room for in the ConfigMap, beside all else."""
        key = self.key or COREFILE
        others = sum(len(text.encode()) for name, text in self.data.items() if name != key)
        room = CONFIG_MAP_BYTES - others - len(self.user.encode())
        most = min(self.config.coredns.max_bytes, room)
        return fit(naming, standing_names([self.data.get(key, "")]).all, self._size, most)

    def _size(self, answers: Sequence[Answer]) -> int:
        lines = _Lines(self.corefile, answers, self.config)
        text = with_blocks(self.user, lines.of) if self.key is None else as_file(lines.of_root())
        return len(text.encode()) - len(self.user.encode())


def _user_text(data: Mapping[str, str], *, adopt: bool) -> str:
    if COREFILE not in data:
        raise CorefileError(f"it has no key {COREFILE}, but {', '.join(sorted(data)) or 'none at all'}")
    user = without_blocks(data[COREFILE])
    return without_hairpin_proxy(user) if adopt else user


def _edited(user: str, lines_for: Callable[[Block], list[str]]) -> str:
    """The text with our block; refused is what CoreDNS would not take, or what changes anything else."""
    after = with_blocks(user, lines_for)
    parse(after)
    if without_blocks(after) != user:
        raise CorefileError("the edit would change more than nodeagent's block; nothing was changed")
    return after


@contextmanager
def _about(where: str) -> Iterator[None]:
    """Errors within say where they are."""
    try:
        yield
    except CorefileError as error:
        raise CorefileError(f"{where}: {error}") from error
