"""By which way our lines get into CoreDNS's configuration: its Corefile, or a file that it imports.

Pure.
"""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodeagent.config.options import Config
from nodeagent.coredns.corefile.managed import without_blocks
from nodeagent.coredns.corefile.parsing import Corefile, CorefileError, parse
from nodeagent.coredns.naming import Source


def path_of(config: Config, config_map: str) -> str:
    """Namespace and name of one of CoreDNS's ConfigMaps, as a person writes it."""
    return f"{config.coredns.namespace}/{config_map}"


@dataclass(frozen=True, slots=True)
class Way:
    """The way that is taken. `key` is ours in the import ConfigMap; None: it is the Corefile itself."""

    key: str | None
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As the configuration has it."""
        return "corefile" if self.key is None else "import"


def choose(corefile: Corefile, config: Config, *, importable: bool) -> Way:
    """Chooses by `coredns.mode`, and says what a person should know.

    Args:
        corefile: The Corefile, without our block.
        config: The configuration.
        importable: Whether the import ConfigMap is there.

    Raises:
        CorefileError: the configuration asks for what this cluster does not have.
    """
    options = config.coredns
    path, imported = path_of(config, options.config_map), path_of(config, options.import_config_map)
    remarks = [*_without_reload(corefile, config)]
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
        raise CorefileError(f"{imported}: no such ConfigMap; make it: {make}")
    if key is not None and not importable:
        remarks.append(
            f"{imported}: no such ConfigMap, though the Corefile imports one; so the Corefile itself is "
            f"edited, which its owner may put back. Make it: {make}"
        )
    return Way(key if importable else None, tuple(remarks))


def imported_sources(corefile: Corefile, data: Mapping[str, str]) -> Iterator[Source]:
    """What the Corefile imports from the import ConfigMap, without our own block.

    What can't be read is left out: CoreDNS itself complains of it, and it sets no names.
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


def _without_reload(corefile: Corefile, config: Config) -> Iterator[str]:
    plugins = (plugin for root in corefile.roots for plugin in corefile.plugins(root))
    if all(plugin.name != "reload" for plugin in plugins):
        options = config.coredns
        yield (
            f"{path_of(config, options.config_map)}: the Corefile has no `reload`: CoreDNS sees changes only "
            f"when its pods start anew (kubectl -n {options.namespace} rollout restart deployment coredns)"
        )


def _import_key(corefile: Corefile) -> str | None:
    """Our key of the import ConfigMap: a file name that the import of every root server block takes in."""
    found = []
    for root in corefile.roots:
        patterns = (
            posixpath.basename(plugin.arguments[0])
            for plugin in corefile.plugins(root)
            if plugin.name == "import" and plugin.arguments
        )
        # One that takes in every file would take in those for other places (`*.server`), too.
        found.append({f"nodeagent{pattern[1:]}" for pattern in patterns if pattern.startswith("*.")})
    return min(set.intersection(*found), default=None) if found else None
