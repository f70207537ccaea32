"""Writes edits into CoreDNS's ConfigMaps, each ConfigMap in one compare-and-swap."""

from collections.abc import Callable, Mapping, Sequence

from nodeagent.coredns.config_maps import PREVIOUS, ConfigMap, changed, replace
from nodeagent.coredns.corefile.managed import blocks_of, without_blocks
from nodeagent.coredns.editing import COREFILE, Edit
from nodeagent.sources.kubernetes.connection import Connection


def write(
    connection: Connection, config_map: ConfigMap, edits: Sequence[Edit], seconds: Callable[[], float]
) -> None:
    """Writes the edits of one ConfigMap, which was read when they were decided.

    Args:
        connection: To the API server.
        config_map: As it was read.
        edits: Its edits.
        seconds: Tells, right before the write, how long it may take; may raise instead.

    Raises:
        ConflictError: somebody else wrote it since it was read; nothing was changed.
        ApplyError: it would be larger than the API takes; nothing was changed.
        SourceError: another trouble with the API, or what `seconds` raises.
    """
    texts = {edit.key: edit.after for edit in edits}
    body = changed(config_map, texts, _previous(config_map, texts))
    replace(connection, config_map, body, seconds())


def put_back_previous(connection: Connection, config_map: ConfigMap, seconds: float) -> bool:
    """Puts the Corefile back that was kept, byte for byte, whatever was edited since.

    Returns:
        Whether there was one. Raises as `write`.
    """
    kept = config_map.annotations.get(PREVIOUS)
    if kept is None:
        return False
    replace(connection, config_map, changed(config_map, {COREFILE: kept}, None), seconds)
    return True


def _previous(config_map: ConfigMap, texts: Mapping[str, str | None]) -> str | None:
    """What is to be kept: the Corefile as it was before nodeagent's block came in; nothing once it is out."""
    before, after = config_map.data.get(COREFILE), texts.get(COREFILE)
    kept = config_map.annotations.get(PREVIOUS)
    if before is None or after is None:
        return kept
    if not blocks_of(after):
        return None
    if not blocks_of(before):
        return before
    return without_blocks(before) if kept is None else kept
