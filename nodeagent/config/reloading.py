"""Notices a changed configuration file, and decides whether it may replace the configuration in effect."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeagent.config.options import Config
from nodeagent.config.reading import read_config
from nodeagent.errors import ConfigError

_SETTLE_SECONDS = 1.0

_Options = Mapping[str, Callable[[Config], object]]
_RELAY: _Options = {
    "relay.kind": lambda config: config.relay.kind,
    "relay.service": lambda config: config.relay.service,
}


@dataclass(frozen=True, slots=True)
class FixedOptions:
    """The options that can't change while a program runs: with another value it would lose what it wrote.

    `program` and `cleanup` are the words for it, and for the command that removes what it wrote.
    """

    program: str
    cleanup: str
    options: _Options


AGENT = FixedOptions(
    "agent",
    "nodeagent cleanup",
    {
        **_RELAY,
        "relay.launch": lambda config: config.relay.launch,
        "relay.interface": lambda config: config.relay.interface,
        "relay.ipv4": lambda config: config.relay.ipv4,
        "relay.ipv6": lambda config: config.relay.ipv6,
        "relay.runDir": lambda config: config.relay.run_dir,
        "relay.haproxyDir": lambda config: config.relay.haproxy_dir,
        "hosts.file": lambda config: config.hosts.file,
        "telemetry.listen": lambda config: config.telemetry.listen,
    },
)
COREDNS_CONTROLLER = FixedOptions(
    "controller",
    "nodeagent coredns cleanup",
    {
        **_RELAY,
        "coredns.namespace": lambda config: config.coredns.namespace,
        "coredns.configMap": lambda config: config.coredns.config_map,
        "coredns.importConfigMap": lambda config: config.coredns.import_config_map,
        "coredns.nodeLocalConfigMap": lambda config: config.coredns.node_local_config_map,
    },
)


def reload_config(file: Path | None, current: Config, fixed: FixedOptions) -> Config:
    """Read `file` again (None: there is none, all is default).

    Raises:
        ConfigError: the file is invalid, or changes what can't change while the program runs.
    """
    config = read_config(file) if file else Config()
    moved = sorted(key for key, value in fixed.options.items() if value(config) != value(current))
    if moved:
        raise ConfigError(
            f"{', '.join(moved)} can't change while the {fixed.program} runs: run `{fixed.cleanup}` with the "
            "old configuration, then start with the new one"
        )
    return config


class ConfigFile:
    """Notices that the configuration file became another, as a ConfigMap's does when it is edited.

    Args:
        file: The file; None: there is none, and it never changes.
        clock: Returns the time in seconds since 1970, as the file system counts it.
    """

    def __init__(self, file: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._seen = self._stamp()

    def has_changed(self, *, at_once: bool = False) -> bool:
        """Whether the file is another than when this was last true, by inode, size and time, through links.

        A ConfigMap's file is a link that is swapped: the inode behind it changes. An absent file is no
        change; it is told when it is back. A file written to less than a second ago is no change yet: it may
        be written in place, and half of it can be a configuration, too.

        Args:
            at_once: Do not wait for that second: somebody asked for the file as it is.
        """
        now = self._stamp()
        if now is None or now == self._seen:
            return False
        _, _, written_ns = now
        if not at_once and 0 <= self._clock() - written_ns / 1e9 < _SETTLE_SECONDS:
            return False
        self._seen = now
        return True

    def _stamp(self) -> tuple[int, int, int] | None:
        if self._file is None:
            return None
        try:
            found = os.stat(self._file)  # noqa: PTH116 - a stamp, no path's business
        except OSError:
            return None
        return (found.st_ino, found.st_size, found.st_mtime_ns)
