"""Reads a configuration file, and reads it again when it has changed. All problems are reported at once."""

import difflib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import yaml

from nodeagent.config.options import Config
from nodeagent.errors import ConfigError, one_line, shortened
from nodeagent.typed_values import from_plain, plain_words
from nodeagent.yaml_loader import LONGEST_PROBLEM, compose, value_of, yaml_problem

_LONGEST = 1024 * 1024
"""Characters; the API accepts no larger ConfigMap."""


def read_config(path: Path | None) -> Config:
    """Read the configuration from YAML; an empty file, or none, means all defaults. Raises ConfigError."""
    if path is None:
        return Config()
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
        raise ConfigError(f"{path}: can't be read: {why}; nothing was changed. Check --config") from error
    if len(text) > _LONGEST:
        raise ConfigError(f"{path}: more than {_LONGEST} characters; nothing was changed. Check --config")
    return parse_config(text, str(path))


def parse_config(text: str, file: str) -> Config:
    """Return the configuration in `text`; `file` only names it in errors. Raises ConfigError. Pure."""
    try:
        root = compose(text)
    except yaml.YAMLError as error:
        line, why = yaml_problem(error, text)
        raise ConfigError(f"{file}:{line}: not YAML: {why}") from error
    if root is None or _is_null(root):
        return Config()
    problems = [
        shortened(one_line(f"{file}:{line}: {key or 'the file'}: {problem}"), LONGEST_PROBLEM)
        for line, key, problem in _problems(root, Config, "")
    ]
    if problems:
        raise ConfigError("\n".join(problems))
    config: Config = _convert(root, Config)
    return config


def _problems(node: yaml.Node, expected: Any, key: str) -> Iterator[tuple[int, str, str]]:  # noqa: ANN401
    """Yield (line, key, problem) for all that is wrong at and below `node`."""
    if isinstance(expected, type) and issubclass(expected, msgspec.Struct):
        yield from _mapping_problems(node, expected, key)
    elif get_origin(expected) is tuple:
        yield from _list_problems(node, get_args(expected)[0], key)
    elif get_origin(expected) is Literal:
        if not isinstance(node, yaml.ScalarNode) or node.value not in get_args(expected):
            value = repr(node.value) if isinstance(node, yaml.ScalarNode) else "this"
            yield _line(node), key, f"{value} is not one of {', '.join(get_args(expected))}"
    else:
        try:
            _convert(node, expected)
        except yaml.YAMLError as error:
            yield _line(node), key, yaml_problem(error, "")[1]
        except msgspec.ValidationError as error:
            yield _line(node), key, plain_words(error)


def _list_problems(node: yaml.Node, expected: Any, key: str) -> Iterator[tuple[int, str, str]]:  # noqa: ANN401
    if not isinstance(node, yaml.SequenceNode):
        yield _line(node), key, "must be a list"
        return
    seen: set[str] = set()
    for index, item in enumerate(node.value):
        yield from _problems(item, expected, f"{key}[{index}]")
        if isinstance(item, yaml.ScalarNode):
            if item.value in seen:
                yield _line(item), f"{key}[{index}]", "given twice"
            seen.add(item.value)


def _mapping_problems(
    node: yaml.Node, expected: type[msgspec.Struct], key: str
) -> Iterator[tuple[int, str, str]]:
    if not isinstance(node, yaml.MappingNode):
        yield _line(node), key, "must be a mapping of keys"
        return
    for key_node, _ in node.value:
        if key_node.value == "apiVersion":
            yield _line(key_node), key, "this is a Kubernetes object; pass only the text that its data holds"
            return
    fields = {field.encode_name: field for field in msgspec.structs.fields(expected)}
    seen: set[str] = set()
    # An empty key (for example, with everything below it commented out) means the default.
    node.value = [pair for pair in node.value if not (_is_null(pair[1]) and str(pair[0].value) in fields)]
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            yield _line(key_node), key, "a key must be plain text"
            continue
        name = str(key_node.value)
        path = f"{key}.{name}" if key else name
        if name not in fields:
            yield _line(key_node), path, f"unknown key{_suggestion(name, fields)}"
        elif name in seen:
            yield _line(key_node), path, "given twice"
        else:
            yield from _problems(value_node, fields[name].type, path)
        seen.add(name)
    for name, field in fields.items():
        if field.required and name not in seen:
            yield _line(node), key, f"{name!r} is missing"


def _suggestion(name: str, known: dict[str, msgspec.structs.FieldInfo]) -> str:
    spelt = {key.lower(): key for key in known}
    near = [spelt[match] for match in difflib.get_close_matches(name.lower().replace("_", ""), spelt, n=1)]
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _convert(node: yaml.Node, expected: Any) -> Any:  # noqa: ANN401 - the type is the argument's
    return from_plain(value_of(node), expected, dec_hook=_checked)


def _checked(expected: type[Any], value: object) -> object:
    """Make a value of a type that checks itself; its ValueError becomes the option's problem."""
    text = from_plain(value, str)
    return expected.parse(text) if hasattr(expected, "parse") else expected(text)


_SETTLE_SECONDS = 1.0


class FixedOptions(msgspec.Struct, frozen=True):
    """The options that can't change while a program runs: it would lose what it wrote.

    `cleanup` is the command that removes that.
    """

    program: str
    cleanup: str
    options: tuple[str, ...]


_RELAY = ("relay.kind", "relay.service", "relay.ipv4", "relay.ipv6")
AGENT = FixedOptions(
    "agent",
    "nodeagent cleanup",
    (*_RELAY, "relay.launch", "relay.interface", "relay.runDir", "hosts.file", "telemetry.listen"),
)
COREDNS_CONTROLLER = FixedOptions(
    "controller",
    "nodeagent coredns cleanup",
    (
        *_RELAY,
        "coredns.namespace",
        "coredns.configMap",
        "coredns.importConfigMap",
        "coredns.nodeLocalConfigMap",
    ),
)


class ConfigFile:
    """The configuration in effect, and its file, whose changes it notices, such as an edit of its ConfigMap.

    `clock` is in seconds since 1970, as the file system counts them.
    """

    def __init__(
        self, file: Path | None, config: Config, fixed: FixedOptions, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = file
        self.config = config
        self._fixed = fixed
        self._clock = clock
        self._seen = self._stamp()
        self._unreadable = False

    def reload(self, *, at_once: bool = False) -> bool:
        """Read the file again if it has changed, or `at_once`; return whether it was read.

        Raises ConfigError if it is invalid, or changes what can't change; the old configuration stays in
        effect. A file that can't be read raises only the first time.
        """
        if not self.has_changed(at_once=at_once) and not at_once:
            return False
        fixed = self._fixed
        try:
            config = read_config(self.path)
        except ConfigError as error:
            reported, self._unreadable = self._unreadable, isinstance(error.__cause__, OSError)
            if self._unreadable:
                self._seen = None  # it may be readable the next time
                if reported and not at_once:
                    return False
            raise
        self._unreadable = False
        before, after = (msgspec.to_builtins(edition, enc_hook=str) for edition in (self.config, config))
        options = [(*key.partition("."), key) for key in sorted(fixed.options)]
        moved = [key for section, _, name, key in options if before[section][name] != after[section][name]]
        if moved:
            raise ConfigError(
                f"{', '.join(moved)} can't change while the {fixed.program} runs: run `{fixed.cleanup}` with "
                "the old configuration, then start with the new one"
            )
        self.config = config
        return True

    def has_changed(self, *, at_once: bool = False) -> bool:
        """Whether the file has changed since this was last true, by inode, size and time, through links.

        A missing file is not a change; its return is. A file that was written to less than a second ago has
        not changed yet, unless `at_once`: half of it can be a valid configuration, too.
        """
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:
            return False
        _, _, written_ns = stamp
        if not at_once and 0 <= self._clock() - written_ns / 1e9 < _SETTLE_SECONDS:
            return False
        self._seen = stamp
        return True

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat() if self.path else None
        except OSError:
            status = None
        return status and (status.st_ino, status.st_size, status.st_mtime_ns)
