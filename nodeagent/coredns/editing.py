"""What to change in the ConfigMaps so that CoreDNS answers what the plan serves. Pure.

nodeagent's lines go into the Corefile, or into a file that it imports; this is chosen first.
"""

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from types import MappingProxyType

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.coredns.managed_block import (
    as_file,
    block_names,
    by_pattern,
    with_blocks,
    without_blocks,
    without_hairpin_proxy,
)
from nodeagent.coredns.naming import CONFIG_MAP_BYTES, Ages, Answers, Source, by_templates, name
from nodeagent.coredns.parsing import Corefile, CorefileError, parse
from nodeagent.model.desired import Desired, NameDecision

COREFILE = "Corefile"
"""The key that holds it, in every known ConfigMap of CoreDNS."""


def path_of(config: Config, config_map: str) -> str:
    """Namespace and name of one of CoreDNS's ConfigMaps, as a person writes it."""
    return f"{config.coredns.namespace}/{config_map}"


def choose(corefile: Corefile, config: Config, *, importable: bool) -> tuple[str | None, list[str]]:
    """Choose by `coredns.mode`.

    Args:
        corefile: The Corefile, without nodeagent's block.
        config: The configuration.
        importable: Whether the import ConfigMap exists.

    Returns:
        nodeagent's key in the import ConfigMap, None for the Corefile itself; and what a person should know.

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
        return None, remarks
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
    return key if importable else None, remarks


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
        """Return the removed lines, then the added ones, for a person; in linear time, unlike difflib."""
        where = f"{self.config_map}/{self.key}"
        before, after = ((text or "").splitlines() for text in (self.before, self.after))
        for _ in range(2):  # What both begin with, and then what both end with, is left out.
            same = sum(
                1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
            )
            before, after = before[same:][::-1], after[same:][::-1]
        lines = [f"--- {where}", f"+++ {where}"]
        lines += [f"-{line}" for line in _beyond(before, after)]
        lines += [f"+{line}" for line in _beyond(after, before)]
        return "".join(f"{line}\n" for line in lines)


def _beyond(lines: Iterable[str], others: Iterable[str]) -> Iterator[str]:
    """Yield the lines that the others do not have, or not as often."""
    left = Counter(others)
    for line in lines:
        left[line] -= 1
        if left[line] < 0:
            yield line


class Edits(Struct, frozen=True):
    """All changes, in the order in which they are written, and the reasons; `way` is as in `coredns.mode`."""

    way: str
    edits: tuple[Edit, ...]
    decisions: tuple[NameDecision, ...]
    remarks: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[Edit, ...]:
        """Those that change anything."""
        return tuple(edit for edit in self.edits if edit)


def decide(  # noqa: PLR0913 - what to write, and what limits it
    desired: Desired,
    standing: Mapping[str, Mapping[str, str]],
    config: Config,
    *,
    adopt: bool,
    never: Iterable[str] = (),
    ages: Ages = MappingProxyType({}),
) -> Edits:
    """Decide for all ConfigMaps.

    `standing` are the texts by key of those that exist; the one with the Corefile does. `never` are names
    that no wildcard may match: the API server's.

    Every edit that it returns parses, and differs from the actual text only in nodeagent's own block (with
    `adopt`, in hairpin-proxy's lines too).

    Raises:
        CorefileError: a Corefile can't be edited; the text says which, where and why.
    """
    options = config.coredns
    path, import_path = path_of(config, options.config_map), path_of(config, options.import_config_map)
    main, given = standing[path], standing.get(import_path, {})
    # CoreDNS asks hairpin-proxy's rewrites first, in whatever file they are.
    imported = {key: without_hairpin_proxy(text) if adopt else text for key, text in given.items()}
    forbidden: dict[str, str] = {
        **dict.fromkeys(config.hosts.exclude, "hosts.exclude names"),
        **dict.fromkeys(never, "is a name of the API server"),
        config.hosts.cluster_domain: "is the cluster's own domain",
    }

    def named(target: _Target, sources: Sequence[Source]) -> tuple[Answers, tuple[NameDecision, ...]]:
        block = block_names([target.data.get(target.key or COREFILE, "")])
        return name(desired, sources, target.fits, standing=block, never=forbidden, adopt=adopt, ages=ages)

    with _about(path):
        corefile = parse(_user_text(main, adopt=adopt))
    own_key, remarks = choose(corefile, config, importable=import_path in standing)
    with _about(path):
        target = _Target(corefile, main if own_key is None else imported, own_key, options.max_bytes)
        answers, decisions = named(target, [Source(corefile), *imported_sources(corefile, imported)])
        text = target.written(answers)
    remarks += _taken_first(answers, [Source(corefile), *imported_sources(corefile, imported)])
    edits = [Edit(path, COREFILE, main[COREFILE], corefile.text if own_key else text)]
    if own_key:
        edits.append(Edit(import_path, own_key, given.get(own_key), text or None))
    for key in sorted(imported.keys() - {own_key}):
        after = without_blocks(imported[key]) if key.startswith("nodeagent.") else imported[key]
        edits.append(Edit(import_path, key, given[key], after if after == given[key] else after or None))
    path = path_of(config, options.node_local_config_map)
    if path in standing:
        # NodeLocal DNSCache forwards names outside the cluster past CoreDNS, so it needs them, too.
        data = standing[path]
        try:
            with _about(path):
                corefile = parse(_user_text(data, adopt=adopt))
                target = _Target(corefile, data, None, options.max_bytes)
                text = target.written(named(target, [Source(corefile)])[0])
                edits.append(Edit(path, COREFILE, data[COREFILE], text))
        except CorefileError as error:
            remarks.append(str(error))
    return Edits("import" if own_key else "corefile", tuple(edits), decisions, tuple(remarks))


def decide_removal(config_maps: Mapping[str, Mapping[str, str]]) -> tuple[Edit, ...]:
    """Return the edits that remove nodeagent's block everywhere, leaving every other byte as it is.

    Args:
        config_maps: The texts by key of each ConfigMap.

    Raises:
        CorefileError: a marker is unmatched.
    """
    edits: list[Edit] = []
    for path, data in config_maps.items():
        for key, text in data.items():
            with _about(f"{path}/{key}"):
                rest = without_blocks(text)
            edits.append(Edit(path, key, text, text if rest == text else rest or None))
    return tuple(edit for edit in edits if edit)


def _taken_first(answers: Answers, sources: Iterable[Source]) -> Iterator[str]:
    """Yield a note for each name that a rewrite by pattern takes before nodeagent's lines are asked."""
    for source in sources:
        for hostname, line in by_pattern(source.corefile, source.where, answers).items():
            yield f"{hostname}: {line} takes it first: CoreDNS then does not ask nodeagent's lines"


class _Target(Struct, frozen=True):
    """Where lines are written: into a Corefile, given without nodeagent's block, or a key of what it imports.

    `data` are the texts of the ConfigMap; `key` is None for the Corefile itself. `most` are the bytes that
    nodeagent's block may have.
    """

    corefile: Corefile
    data: Mapping[str, str]
    key: str | None
    most: int

    def written(self, answers: Answers) -> str:
        """Return the text with the lines for these answers.

        Raises:
            CorefileError: CoreDNS would reject it, or it would change anything else.
        """
        after, before = self._text(answers), self._text({})
        parse(after if self.key is None else f". {{\n{after}\n}}\n")
        if without_blocks(after) != before:
            raise CorefileError("the edit would change more than nodeagent's block; nothing was changed")
        return after

    def fits(self, answers: Answers) -> bool:
        """Whether the ConfigMap has room for these answers, next to all else."""
        key = self.key or COREFILE
        others = sum(len(text.encode()) for name, text in self.data.items() if name != key)
        after, before = (len(self._text(each).encode()) for each in (answers, {}))
        return after - before <= self.most and after + others <= CONFIG_MAP_BYTES

    def _text(self, answers: Answers) -> str:
        lines = by_templates(answers)
        if self.key is None:
            return with_blocks(self.corefile.text, lines)
        return without_blocks(self.data.get(self.key, "")) + as_file(lines)


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
