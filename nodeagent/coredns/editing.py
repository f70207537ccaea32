"""What to change in the ConfigMaps so that CoreDNS answers what the plan serves, and why not all. Pure."""

import posixpath
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import accumulate, chain, repeat
from types import MappingProxyType

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.coredns.managed_block import (
    COREFILE,
    Answers,
    as_file,
    block_names,
    by_templates,
    choose,
    path_of,
    with_blocks,
    without_blocks,
    without_hairpin_proxy,
)
from nodeagent.coredns.parsing import (
    Block,
    Corefile,
    CorefileError,
    OwnLine,
    by_pattern,
    by_zone,
    own_names,
    parse,
)
from nodeagent.model.addresses import IPAddress, covering, is_wildcard
from nodeagent.model.decisions import DecisionStatus, NameDecision, skipped
from nodeagent.model.desired import Desired
from nodeagent.model.objects import Age, ObjectRef

CONFIG_MAP_BYTES = 1024 * 1024
"""The API's limit for the data of a ConfigMap (k8s.io/kubernetes, validation.MaxSecretSize)."""
Ages = Mapping[ObjectRef, Age]
"""How old the objects are that claim hostnames."""
_LABEL = re.compile("[a-z0-9_-]{1,63}")
"""Custom kinds hold any text; no program looks up a hostname with other labels."""


class Source(Struct, frozen=True):
    """A Corefile or an import, without nodeagent's block; its ConfigMap's keys; the ports that pods ask."""

    corefile: Corefile
    files: Mapping[str, str]
    where: str
    ports: frozenset[str]


def _sources(
    corefile: Corefile, files: Mapping[str, str], where: str, data: Mapping[str, str]
) -> Iterator[Source]:
    """Yield a Corefile, and what it imports of this data; CoreDNS itself reports unreadable texts."""
    ports = frozenset(port for root in corefile.roots for zone, port in root.addresses if zone == ".")
    yield Source(corefile, files, where, ports)
    inside = chain.from_iterable(map(corefile.imported, corefile.roots))
    # On the brace's own line, so that lines keep their numbers.
    for patterns, form in ((set(inside), ". {{ {}\n}}"), (corefile.imports, "{}")):
        names = [posixpath.basename(pattern) for pattern in patterns]
        for key in sorted(key for key in data if any(fnmatchcase(key, name) for name in names)):
            with suppress(CorefileError):
                yield Source(parse(form.format(without_blocks(data[key]))), data, f"the import {key}", ports)


def _without_ways_to_coredns(local: Corefile, domain: str) -> Corefile:
    """Return NodeLocal's Corefile without the zones that it forwards where it forwards the cluster's own."""

    def target(server: Block) -> list[str]:
        return [to for each in local.plugins(server) if each.name == "forward" for to in each.arguments[1:]]

    ways = [to for each in local.servers if domain in dict(each.addresses) and (to := target(each))]
    roots = local.roots
    servers = tuple(each for each in local.servers if each in roots or target(each) not in ways)
    return replace(local, servers=servers)


class Edit(Struct, frozen=True):
    """One key of one ConfigMap, before and after; None: the key does not exist."""

    config_map: str
    key: str
    before: str | None
    after: str | None

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return self.before != self.after


class Edits(Struct, frozen=True):
    """All keys, in the order in which they are written, and the reasons; `way` is as in `coredns.mode`."""

    way: str
    edits: tuple[Edit, ...]
    decisions: tuple[NameDecision, ...]
    remarks: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[Edit, ...]:
        """The edits that change anything."""
        return tuple(filter(None, self.edits))


def decide(  # noqa: PLR0913 - what to write, and what limits it
    desired: Desired,
    standing: Mapping[str, Mapping[str, str]],
    config: Config,
    *,
    adopt: bool,
    never: Iterable[str] = (),
    ages: Ages = MappingProxyType({}),
) -> Edits:
    """Decide for all ConfigMaps; `standing` are the texts by key of those that exist.

    Every edit parses, and differs from the actual text only in nodeagent's own block (with `adopt`, also in
    hairpin-proxy's lines). No wildcard matches a name of the API server's (`never`). A claim of unknown age
    counts as older than any wildcard's. Raises CorefileError, which says where and why.
    """
    options = config.coredns
    path, import_path = path_of(config, options.config_map), path_of(config, options.import_config_map)
    main, files = standing[path], standing.get(import_path, {})
    # CoreDNS asks hairpin-proxy's rewrites first, in whatever file they are.
    imported = {key: without_hairpin_proxy(text) if adopt else text for key, text in files.items()}
    forbidden: dict[str, str] = {
        **dict.fromkeys(config.hosts.exclude, "hosts.exclude names"),
        **dict.fromkeys(never, "is a name of the API server"),
        config.hosts.cluster_domain: "is the cluster's own domain",
    }
    with _about(path):
        corefile = parse(_user_text(main, adopt=adopt))
    own_key, remarks = choose(corefile, config, importable=import_path in standing)
    target = _Target(corefile, main if own_key is None else imported, own_key, options.max_bytes)
    targets, sources = [target], [*_sources(corefile, main, "the Corefile", imported)]
    local_path = path_of(config, options.node_local_config_map)
    if local_path in standing:
        # Pods ask NodeLocal DNSCache, which asks CoreDNS, or forwards names outside the cluster past it.
        local = standing[local_path]
        try:
            with _about(local_path):
                cache = _Target(parse(_user_text(local, adopt=adopt)), local, None, options.max_bytes)
                cache.written({})
        except CorefileError as error:
            remarks.append(str(error))
        else:
            targets.append(cache)
            own = _without_ways_to_coredns(cache.corefile, config.hosts.cluster_domain)
            sources += _sources(own, local, f"the Corefile of {local_path}", imported)
    with _about(path):
        answers, decisions = _name(desired, sources, targets, forbidden, ages)
        text = target.written(answers)
    remarks += dict.fromkeys(
        f"{hostname}: {line} takes it first: CoreDNS then does not ask nodeagent's lines"
        for source in sources
        for hostname, line in by_pattern(source.corefile, source.where, answers).items()
    )
    edits = [Edit(import_path, own_key, files.get(own_key), text or None)] if own_key else []
    for key in sorted(imported.keys() - {own_key}):
        after = without_blocks(imported[key]) if key.startswith("nodeagent.") else imported[key]
        edits.append(Edit(import_path, key, files[key], after if after == files[key] else after or None))
    in_corefile = Edit(path, COREFILE, main[COREFILE], corefile.text if own_key else text)
    # A block that moves is added first, and then removed: at any time it is in one of them.
    edits = [*edits, in_corefile] if own_key else [in_corefile, *edits]
    edits += [Edit(local_path, COREFILE, each.data[COREFILE], each.written(answers)) for each in targets[1:]]
    return Edits("import" if own_key else "corefile", tuple(edits), decisions, tuple(remarks))


def decide_removal(config_maps: Mapping[str, Mapping[str, str]]) -> tuple[Edit, ...]:
    """Return the edits that remove nodeagent's block. Raises CorefileError: a marker is unmatched."""
    edits: list[Edit] = []
    for path, data in config_maps.items():
        for key, text in data.items():
            with _about(f"{path}/{key}"):
                rest = without_blocks(text)
            edits.append(Edit(path, key, text, text if rest == text else rest or None))
    return tuple(filter(None, edits))


class _Target(Struct, frozen=True):
    """Where lines are written: into a Corefile, given without nodeagent's block, or (`key`) what it imports.

    `data` are the texts of the ConfigMap, `most` the bytes that nodeagent's block may have.
    """

    corefile: Corefile
    data: Mapping[str, str]
    key: str | None
    most: int

    def written(self, answers: Answers) -> str:
        """Return the text with these answers. Raises CorefileError: CoreDNS would reject it."""
        after, before = self._text(answers), self._text({})
        parse(after if self.key is None else f". {{\n{after}\n}}\n")
        if without_blocks(after) != before:
            raise CorefileError("the edit would change more than nodeagent's block; nothing was changed")
        return after

    def fits(self, answers: Answers) -> bool:
        """Whether the ConfigMap has room for these answers."""
        key = self.key or COREFILE
        other_bytes = sum(len(text.encode()) for name, text in self.data.items() if name != key)
        after, before = (len(self._text(entries).encode()) for entries in (answers, {}))
        return after - before <= self.most and after + other_bytes <= CONFIG_MAP_BYTES

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
    try:
        yield
    except CorefileError as error:
        raise CorefileError(f"{where}: {error}") from error


def _name(
    desired: Desired,
    sources: Sequence[Source],
    targets: Sequence[_Target],
    never: Mapping[str, str],
    ages: Ages,
) -> tuple[Answers, tuple[NameDecision, ...]]:
    """Return what all targets answer, and the plan's decisions, changed where CoreDNS decides itself.

    Of a namespace's names those that the first target answers now come first. `never`: why not to answer.
    """
    standing = block_names([targets[0].data.get(targets[0].key or COREFILE, "")]).keys()
    addresses: dict[str, list[IPAddress]] = {}
    for line in desired.hosts:
        addresses.setdefault(line.name, []).append(line.address)
    lines: dict[str, OwnLine] = {}
    blocks: dict[str, str] = {}
    for source in sources:
        for server in source.corefile.servers:
            zones = (zone for zone, port in server.addresses if port in source.ports)
            blocks = dict.fromkeys(zones, f"the server block {server} of {source.where}") | blocks
        of_zones = by_zone(source.corefile, source.where, addresses)
        lines = of_zones | own_names(source.corefile, source.where, source.files) | lines
    decisions = tuple(_decided(decision, lines, blocks) for decision in desired.names)
    may = _answered(addresses, decisions)
    beyond = _beyond_room(may, decisions, standing, lambda some: all(each.fits(some) for each in targets))
    decisions = _skipping(decisions, beyond, "BlockFull")
    elsewhere = {name: f"{line.where} sets" for name, line in lines.items()} | {**never}
    decisions = _skipping(decisions, _too_wide(decisions, elsewhere, ages, standing), "WildcardTooWide")
    return _answered(addresses, decisions), decisions


def _answered(addresses: Answers, decisions: Iterable[NameDecision]) -> Answers:
    served = {decision.name for decision in decisions if decision.status is DecisionStatus.SERVED}
    return {name: ips for name, ips in addresses.items() if name in served}


def _decided(decision: NameDecision, lines: Mapping[str, OwnLine], blocks: Mapping[str, str]) -> NameDecision:
    if decision.status is not DecisionStatus.SERVED:
        return decision
    line = lines.get(decision.name)
    if line is not None and line.writer == "hairpin-proxy":
        code, reason = "HairpinProxyLine", f"left to hairpin-proxy's {line.where}: --adopt takes it over"
    elif line is not None:
        by = f"; {line.writer} wrote it: remove it there, or delete the line" if line.writer else ""
        code, reason = "UserLine", f"left to {line.where}, where plugin {line.plugin} sets it{by}"
    elif zone := covering(decision.name.removeprefix("*."), blocks):  # CoreDNS hands it the name
        code, reason = "ServerBlock", f"left to {blocks[zone]}, which serves all names of its zone"
    else:
        return decision
    return replace(decision, conclusion=skipped(code, reason))


def _skipping(
    decisions: Iterable[NameDecision], left_out: Mapping[str, str], code: str
) -> tuple[NameDecision, ...]:
    """Return the decisions, in which these names are skipped, each for its reason."""
    return tuple(
        replace(decision, conclusion=skipped(code, left_out[decision.name]))
        if decision.status is DecisionStatus.SERVED and decision.name in left_out
        else decision
        for decision in decisions
    )


def _beyond_room(
    answers: Answers,
    decisions: Iterable[NameDecision],
    standing: AbstractSet[str],
    fits: Callable[[Answers], bool],
) -> Mapping[str, str]:
    """Return the names that there is no room for. The namespaces take turns, with equal numbers of letters.

    Past the API's limit, nothing could be written any more, and names that were withdrawn would stay.
    """
    if fits(answers):
        return {}
    owners = {
        claim.name: claim.claimed_by.namespace for claim in decisions if claim.status is DecisionStatus.SERVED
    }
    shares: dict[str, list[str]] = {}
    for name in answers:
        shares.setdefault(owners[name], []).append(name)
    turns: list[tuple[int, str, str]] = []
    for namespace, names in shares.items():
        names.sort(key=lambda name: (name not in standing, name))
        turns += zip(accumulate(map(len, names)), repeat(namespace), names)
    ordered = [name for _, _, name in sorted(turns)]

    def is_too_much(count: int) -> bool:
        return not fits({name: answers[name] for name in ordered[:count]})

    room = bisect_right(range(1, len(ordered)), 0, key=is_too_much)
    reason = (
        "no room: nodeagent's block has a limit (coredns.maxBytes, and the API's limit for a ConfigMap), and "
        "each namespace its share of it"
    )
    return dict.fromkeys(ordered[room:], reason)


def _too_wide(
    decisions: Sequence[NameDecision], elsewhere: Mapping[str, str], ages: Ages, standing: AbstractSet[str]
) -> Mapping[str, str]:
    """Return the wildcards that match a name for which their answer would be wrong, each with the reason.

    Such a name is set elsewhere, or is claimed and has no answer here: its address is another one. Of two
    namespaces, the older claim counts, unless the wildcard is answered already: no later edit takes it away.
    """
    answered = {decision.name for decision in decisions if decision.status is DecisionStatus.SERVED}
    claims: dict[str, list[NameDecision]] = {}
    for decision in decisions:
        label, _, parent = decision.name.partition(".")
        if decision.name not in answered and decision.code != "ServerBlock" and _LABEL.fullmatch(label):
            claims.setdefault(parent, []).append(decision)
    foreign = {name.partition(".")[2]: f"{name}, which {why}" for name, why in elsewhere.items()}

    def matched(wildcard: NameDecision) -> Iterator[str]:
        by, parent = wildcard.claimed_by, wildcard.name.removeprefix("*.")
        if parent in foreign:
            yield foreign[parent]
        for claim in claims.get(parent, ()):
            is_own = claim.claimed_by.namespace == by.namespace
            is_older = by not in ages or claim.claimed_by not in ages or ages[claim.claimed_by] < ages[by]
            counts = is_older and wildcard.name not in standing
            if is_own or (counts and claim.code != "ExcludedByAnnotation"):
                yield f"{claim.name}, which {claim.claimed_by} claims ({claim.code})"

    return {
        claim.name: f"CoreDNS would also answer {first} with its address; DNAT serves it where it sees pods"
        for claim in decisions
        if is_wildcard(claim.name)
        and claim.status is DecisionStatus.SERVED
        and (first := next(matched(claim), ""))
    }
