"""What to change in the ConfigMaps so that CoreDNS answers what the plan serves. Pure.

nodeagent's lines go into the Corefile, or into a file that it imports; this is chosen first.
"""

import difflib
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.coredns.managed_block import (
    as_file,
    block_names,
    with_blocks,
    without_blocks,
    without_hairpin_proxy,
)
from nodeagent.coredns.naming import (
    CONFIG_MAP_BYTES,
    Ages,
    Answer,
    Naming,
    Source,
    by_rewriting,
    by_templates,
    fit,
    name,
)
from nodeagent.coredns.parsing import Block, Corefile, CorefileError, parse
from nodeagent.model.desired import Desired, NameDecision
from nodeagent.plan.hostnames import covering

COREFILE = "Corefile"
"""The key that holds it, in every known ConfigMap of CoreDNS."""


def path_of(config: Config, config_map: str) -> str:
    """Namespace and name of one of CoreDNS's ConfigMaps, as a person writes it."""
    return f"{config.coredns.namespace}/{config_map}"


class Way(Struct, frozen=True):
    """The chosen way. `key` is nodeagent's in the import ConfigMap; None: it is the Corefile itself."""

    key: str | None
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the value as in the configuration."""
        return "corefile" if self.key is None else "import"


def choose(corefile: Corefile, config: Config, *, importable: bool) -> Way:
    """Choose by `coredns.mode`, and return what a person should know.

    Args:
        corefile: The Corefile, without nodeagent's block.
        config: The configuration.
        importable: Whether the import ConfigMap exists.

    Raises:
        CorefileError: the configuration requires something that this cluster does not have.
    """
    options = config.coredns
    path, imported = path_of(config, options.config_map), path_of(config, options.import_config_map)
    remarks = []
    if all(plugin.name != "reload" for root in corefile.roots for plugin in corefile.plugins(root)):
        restart = f"kubectl -n {options.namespace} rollout restart deployment coredns"
        remarks.append(
            f"{path}: the Corefile has no `reload`: CoreDNS reads changes only when its pods restart "
            f"({restart})"
        )
    key = _import_key(corefile)
    if options.mode == "corefile":
        return Way(None, tuple(remarks))
    make = f"kubectl -n {options.namespace} create configmap {options.import_config_map}"
    if options.mode == "import" and key is None:
        raise CorefileError(
            f"{path}: coredns.mode is import, but the server block for '.' imports no directory: add "
            "`import custom/*.override` to it, or set coredns.mode to corefile"
        )
    if options.mode == "import" and not importable:
        raise CorefileError(f"{imported}: no such ConfigMap; create it: {make}")
    if key is not None and not importable:
        remarks.append(
            f"{imported}: no such ConfigMap, though the Corefile imports one; so nodeagent edits the "
            f"Corefile itself, which its owner might revert. Create it: {make}"
        )
    return Way(key if importable else None, tuple(remarks))


def imported_sources(corefile: Corefile, data: Mapping[str, str]) -> Iterator[Source]:
    """Yield what the Corefile imports from the import ConfigMap, without nodeagent's own block.

    Unreadable texts are left out: CoreDNS itself reports them, and they set no names.
    """
    end = posixpath.splitext(_import_key(corefile) or "")[1]
    for key, text in sorted(data.items()):
        where = f"the key {key}"
        try:
            user = without_blocks(text)
            if end and key.endswith(end):
                # On the brace's own line, so that lines keep their numbers.
                yield Source(parse(f". {{ {user}\n}}"), where)
            elif key.endswith(".server"):
                yield Source(parse(user), where)
        except CorefileError:
            continue


def _import_key(corefile: Corefile) -> str | None:
    """Return nodeagent's key of the import ConfigMap: a file name that every root server block imports."""
    found = []
    for root in corefile.roots:
        patterns = (
            posixpath.basename(plugin.arguments[0])
            for plugin in corefile.plugins(root)
            if plugin.name == "import" and plugin.arguments
        )
        # A pattern that matches every file would also match those for other places (`*.server`).
        found.append({f"nodeagent{pattern[1:]}" for pattern in patterns if pattern.startswith("*.")})
    return min(set.intersection(*found), default=None) if found else None


class MapContents(Struct, frozen=True):
    """What the ConfigMaps hold now: their data by key. None for one that does not exist."""

    main: Mapping[str, str]
    imported: Mapping[str, str] | None = None
    node_local: Mapping[str, str] | None = None


class Edit(Struct, frozen=True):
    """One key of one ConfigMap, before and after; None: the key does not exist."""

    config_map: str
    key: str
    before: str | None
    after: str | None

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return self.before != self.after

    def diff(self) -> str:
        """Return a unified diff, for a person."""
        where = f"{self.config_map}/{self.key}"
        before, after = ((text or "").splitlines() for text in (self.before, self.after))
        lines = difflib.unified_diff(before, after, where, where, lineterm="")
        return "".join(f"{line}\n" for line in lines)


class Edits(Struct, frozen=True):
    """All changes, in the order in which they are written, and the reasons."""

    way: Way
    edits: tuple[Edit, ...]
    decisions: tuple[NameDecision, ...]
    remarks: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[Edit, ...]:
        """Those that change anything."""
        return tuple(edit for edit in self.edits if edit)


def decide(  # noqa: PLR0913 - what to write, and what limits it
    desired: Desired,
    standing: MapContents,
    config: Config,
    *,
    adopt: bool,
    never: Iterable[str] = (),
    ages: Ages = MappingProxyType({}),
) -> Edits:
    """Decide for all ConfigMaps. `never` are names that no wildcard may match: the API server's.

    Every edit that it returns parses, and differs from the actual text only in nodeagent's own block (with
    `adopt`, in hairpin-proxy's lines too).

    Raises:
        CorefileError: a Corefile can't be edited; the text says which, where and why.
    """
    options = config.coredns
    path = path_of(config, options.config_map)
    imported = standing.imported or {}
    never = (*never, *config.hosts.exclude, config.hosts.cluster_domain)
    with _about(path):
        corefile = parse(_user_text(standing.main, adopt=adopt))
    way = choose(corefile, config, importable=standing.imported is not None)
    sources = [Source(corefile), *imported_sources(corefile, imported)]
    with _about(path):
        target = _Target(corefile, standing.main if way.key is None else imported, way.key, config)
        naming = target.fitted(name(desired, sources, never=never, adopt=adopt, ages=ages))
        text = target.written(naming.answers)
    after = corefile.text if way.key else text
    edits = [Edit(path, COREFILE, standing.main[COREFILE], after)]
    path = path_of(config, options.import_config_map)
    if way.key:
        edits.append(Edit(path, way.key, imported.get(way.key), text or None))
    others = sorted(key for key in imported if key.startswith("nodeagent.") and key != way.key)
    edits += [Edit(path, key, imported[key], without_blocks(imported[key]) or None) for key in others]
    remarks = [*way.remarks]
    if standing.node_local is not None:
        # NodeLocal DNSCache forwards names outside the cluster past CoreDNS, so it needs them, too.
        path, data = path_of(config, options.node_local_config_map), standing.node_local
        try:
            with _about(path):
                corefile = parse(_user_text(data, adopt=adopt))
                target = _Target(corefile, data, None, config)
                local = target.fitted(name(desired, [Source(corefile)], never=never, adopt=adopt, ages=ages))
                edits.append(Edit(path, COREFILE, data[COREFILE], target.written(local.answers)))
        except CorefileError as error:
            remarks.append(str(error))
    return Edits(way, tuple(edits), naming.decisions, tuple(remarks))


def decide_removal(standing: MapContents, config: Config) -> tuple[Edit, ...]:
    """Return the edits that remove nodeagent's block everywhere, leaving every other byte as it is.

    Raises:
        CorefileError: a marker is unmatched.
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


class _Target(Struct, frozen=True):
    """Where lines are written: into a Corefile, given without nodeagent's block, or a key of what it imports.

    `data` are the texts of the ConfigMap; `key` is None for the Corefile itself.
    """

    corefile: Corefile
    data: Mapping[str, str]
    key: str | None
    config: Config

    def written(self, answers: Sequence[Answer]) -> str:
        """Return the text with the lines for these answers.

        Raises:
            CorefileError: CoreDNS would reject it, or it would change anything else.
        """
        if self.key is not None:
            file = as_file(self._lines(self.corefile.roots[0], answers))
            after = without_blocks(self.data.get(self.key, "")) + file
            parse(f". {{\n{after}\n}}\n")
            return after
        after = with_blocks(self.corefile.text, lambda block: self._lines(block, answers))
        parse(after)
        if without_blocks(after) != self.corefile.text:
            raise CorefileError("the edit would change more than nodeagent's block; nothing was changed")
        return after

    def fitted(self, naming: Naming) -> Naming:
        """Return as much of it as there is room for in the ConfigMap, next to all else."""
        key = self.key or COREFILE
        others = sum(len(text.encode()) for name, text in self.data.items() if name != key)
        user = len(self.corefile.text.encode()) if self.key is None else 0
        most = min(self.config.coredns.max_bytes, CONFIG_MAP_BYTES - others - user)
        return fit(naming, block_names([self.data.get(key, "")]).all, self._size, most)

    def _size(self, answers: Sequence[Answer]) -> int:
        if self.key is not None:
            return len(as_file(self._lines(self.corefile.roots[0], answers)).encode())
        text = with_blocks(self.corefile.text, lambda block: self._lines(block, answers))
        return len(text.encode()) - len(self.corefile.text.encode())

    def _lines(self, block: Block, answers: Sequence[Answer]) -> list[str]:
        """Find a relay Service by its name if the cluster's names are known there, else by its address."""
        relay, domain = self.config.relay, self.config.hosts.cluster_domain
        in_cluster = any(
            plugin.name == "kubernetes"
            and covering(domain, (zone.lower().removesuffix(".") for zone in plugin.arguments))
            for plugin in self.corefile.plugins(block)
        )
        if relay.kind == "service" and in_cluster:
            service = f"{relay.service.name}.{relay.service.namespace}.svc.{domain}"
            return by_rewriting(answers, service)
        return by_templates(answers)


def _user_text(data: Mapping[str, str], *, adopt: bool) -> str:
    if COREFILE not in data:
        raise CorefileError(f"it has no key {COREFILE}, but {', '.join(sorted(data)) or 'none at all'}")
    user = without_blocks(data[COREFILE])
    return without_hairpin_proxy(user) if adopt else user


@contextmanager
def _about(where: str) -> Iterator[None]:
    """Add the place to errors within."""
    try:
        yield
    except CorefileError as error:
        raise CorefileError(f"{where}: {error}") from error
