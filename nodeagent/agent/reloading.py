"""Whether a configuration that was read anew may take over from the one in force."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nodeagent.config.options import Config
from nodeagent.config.reading import read_config
from nodeagent.errors import ConfigError

# What says where things stand: under another value the agent would lose sight of what it made.
_FIXED: dict[str, Callable[[Config], object]] = {
    "relay.kind": lambda config: config.relay.kind,
    "relay.launch": lambda config: config.relay.launch,
    "relay.interface": lambda config: config.relay.interface,
    "relay.ipv4": lambda config: config.relay.ipv4,
    "relay.ipv6": lambda config: config.relay.ipv6,
    "relay.runDir": lambda config: config.relay.run_dir,
    "relay.haproxyDir": lambda config: config.relay.haproxy_dir,
    "relay.service": lambda config: config.relay.service,
    "hosts.file": lambda config: config.hosts.file,
    "telemetry.listen": lambda config: config.telemetry.listen,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The configuration to go on with; `problem` says why it is still the old one."""

    config: Config
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Reloading:
    """Takes over from `current`."""

    current: Config

    def read(self, file: Path | None) -> Outcome:
        """Reads `file` (None: there is none, all is default) and compares it with what is in force."""
        try:
            config = read_config(file) if file else Config()
        except ConfigError as error:
            return Outcome(self.current, str(error))
        moved = [key for key, value in _FIXED.items() if value(config) != value(self.current)]
        if moved:
            return Outcome(
                self.current,
                f"{', '.join(moved)} can't change while the agent runs: run `nodeagent cleanup` with the old "
                "configuration, then start with the new one",
            )
        return Outcome(config)


class ConfigFile:
    """Notices that the configuration file became another, as a ConfigMap's does when it is edited.

    Args:
        file: The file; None: there is none, and it never changes.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._seen = self._stamp()

    def has_changed(self) -> bool:
        """Whether the file is another than at the last call, by inode, size and time, through links.

        A ConfigMap's file is a link that is swapped: the inode behind it changes. An absent file is no
        change; it is told when it is back.
        """
        now = self._stamp()
        if now is None or now == self._seen:
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
