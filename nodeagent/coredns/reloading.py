"""The configuration, read anew while the controller runs."""

import logging
from collections.abc import Callable
from pathlib import Path

from nodeagent.config.options import Config
from nodeagent.config.reading import read_config
from nodeagent.errors import ConfigError

_LOG = logging.getLogger("nodeagent")

_FIXED: dict[str, Callable[[Config], object]] = {
    "coredns.namespace": lambda config: config.coredns.namespace,
    "coredns.configMap": lambda config: config.coredns.config_map,
    "coredns.importConfigMap": lambda config: config.coredns.import_config_map,
    "coredns.nodeLocalConfigMap": lambda config: config.coredns.node_local_config_map,
    "relay.kind": lambda config: config.relay.kind,
    "relay.service": lambda config: config.relay.service,
}


def read_anew(file: Path | None, current: Config) -> Config | None:
    """The configuration in `file`; None, and a line in the log, where it can't take over from `current`."""
    try:
        config = read_config(file) if file else Config()
    except ConfigError as error:
        _refuse(str(error))
        return None
    # What says where the block stands: under other names the one that stands would be lost sight of.
    moved = [key for key, value in _FIXED.items() if value(config) != value(current)]
    if moved:
        _refuse(
            f"{', '.join(moved)} can't change while the controller runs: run `nodeagent coredns cleanup` "
            "with the old configuration, then start with the new one"
        )
        return None
    _LOG.info("the configuration was read anew")
    return config


def _refuse(reason: str) -> None:
    _LOG.error(
        "the configuration is refused, the old one stays in force", extra={"fields": {"reason": reason}}
    )
