"""The managed block of a hosts file, and the lines around it. Pure: bytes in, bytes out.

The block is last in the file, between two marker lines, one hostname per line (`address<TAB>name`): so each
is its own canonical name (hosts(5)), and no line is longer than musl's buffer of 512 bytes, which would split
it (name_from_hosts).

A file changes only between the markers, with three exceptions, each noted on the BEGIN line so that removal
is exact to the byte: a last line without newline gets one, a missing file is created, and lines that the user
wrote below the block move above it (in the same order).
"""

import io
import re
import socket
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import Literal

from msgspec import Struct

from nodeagent.errors import ApplyError
from nodeagent.model.addresses import IPAddress, IPNetwork
from nodeagent.model.desired import HostsLine
from nodeagent.model.facts import UserHostsLine
from nodeagent.typed_values import intern

HAIRPIN_PROXY_MARK = b"# Added by hairpin-proxy"
"""The end of each of hairpin-proxy's lines (its main.rb: COMMENT_LINE_SUFFIX)."""
_WRITTEN = re.compile(rb"([0-9a-f.:]+)\t([A-Za-z0-9._-]+)\r?\n?")
_TORN = re.compile(rb"([0-9a-f.:]+)(\t[A-Za-z0-9._-]*\r?)?")

BEGIN = b"# BEGIN nodeagent (managed block: edits between these lines are replaced)"
END = b"# END nodeagent"

_TORN_BEGIN_AT_LEAST = b"# BEGIN nodeagent"
_NO_NEWLINE = re.compile(rb" \(no newline at byte (\d{1,18})\)")
_ABSENT = b" (file was absent)"
_SAFE_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")


def hosts_fields(line: bytes) -> tuple[str, tuple[str, ...]]:
    """Split a line (hosts(5)) into its address and its names in lower case; ("", ()) if it has none."""
    fields = [field.lower().decode("ascii", "backslashreplace") for field in line.partition(b"#")[0].split()]
    return (fields[0], tuple(fields[1:])) if fields else ("", ())


def legacy_lines(user: bytes, line_numbers: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return the names of each of hairpin-proxy's lines among the user's, by its number in the file."""
    lines = zip(line_numbers, _lines(user), strict=True)
    return {number: hosts_fields(line)[1] for number, line in lines if _is_legacy(line)}


def without_legacy_lines(user: bytes) -> bytes:
    """Return the user's bytes without the lines of hairpin-proxy."""
    return b"".join(line for line in _lines(user) if not _is_legacy(line))


def names_set(user: bytes, line_numbers: Sequence[int]) -> dict[str, UserHostsLine]:
    """Map each name, in lower case, to its first line; to one of hairpin-proxy's only if no other sets it."""
    names: dict[str, UserHostsLine] = {}
    for number, line in zip(line_numbers, _lines(user), strict=True):
        address, line_names = hosts_fields(line)
        if not _is_address(address):
            continue
        entry = UserHostsLine(number, address, by_hairpin_proxy=_is_legacy(line))
        for name in line_names:
            known = names.get(name)
            if known is None or (known.by_hairpin_proxy and not entry.by_hairpin_proxy):
                names[name] = entry
    return names


def _lines(user: bytes) -> list[bytes]:
    return io.BytesIO(user).readlines()


def _is_legacy(line: bytes) -> bool:
    # A user's comment with the same end is not a line of hairpin-proxy: that always has an address.
    return line.strip().endswith(HAIRPIN_PROXY_MARK) and _is_address(hosts_fields(line)[0])


def _is_address(text: str) -> bool:
    """Return whether a C library accepts `text` as an address: musl all that inet_aton does ("127.1")."""
    with suppress(ValueError):
        return bool(ip_address(text))
    with suppress(OSError, ValueError):  # ValueError: a zero byte, as a crash leaves them
        return bool(socket.inet_aton(text))
    return False


class OwnLines(Struct, frozen=True):
    """Recognizes nodeagent's own lines by the networks of their addresses."""

    networks: tuple[IPNetwork, ...]

    def whole(self, line: bytes) -> bool:
        """Return whether it is `address<TAB>name`, with or without its end."""
        match = _WRITTEN.fullmatch(line)
        return match is not None and self._holds(match[1])

    def torn(self, line: bytes) -> bool:
        """Return whether it starts like one: the last of a file, without a newline."""
        match = _TORN.fullmatch(line)
        # Without a name, it has no meaning for anyone.
        return match is not None and (match[2] is None or self._holds(match[1]))

    def _holds(self, written: bytes) -> bool:
        with suppress(ValueError):
            address = ip_address(written.decode("ascii"))
            return any(address in network for network in self.networks)
        return False


class Problem(Struct, frozen=True):
    """Something in the file that a person should know, and in which line, if in one."""

    line_number: int | None
    text: str


@dataclass(frozen=True, slots=True)
class HostsFile:
    """A parsed file; `absent`: nodeagent made it, and no other program wrote to it."""

    user: bytes
    block: bytes | None = field(repr=False)
    problems: tuple[Problem, ...]
    absent: bool = False
    line_numbers: tuple[int, ...] = field(default=(), repr=False)


def parse(content: bytes, own: OwnLines) -> HostsFile:
    """Split a hosts file into the user's bytes and nodeagent's. Never fails: any bytes are a hosts file.

    Everything between a BEGIN and its END is nodeagent's, as the marker says. With an unmatched marker, only
    the lines next to it that `own` recognizes are, and there is a Problem.
    """
    if BEGIN in content:  # zero bytes at the end: a power failure during a write in place
        content = content.rstrip(b"\0")
    # Not bytes.splitlines(): that also splits at a single CR, which is not a line end for any C library.
    lines = io.BytesIO(content).readlines()
    claim = _claim(lines, own)
    kept = [number for number in range(len(lines)) if number not in claim.ours]
    begin = claim.last_begin
    user, absent = _as_found(
        b"".join(lines[number] for number in kept),
        None if begin is None else lines[begin],
        added_to=begin is not None and bool(kept) and kept[-1] < begin,
    )
    return HostsFile(
        user=user,
        block=b"".join(lines[number] for number in claim.inside) if claim.ours else None,
        problems=tuple(claim.problems),
        absent=absent,
        line_numbers=tuple(number + 1 for number in kept),
    )


def assemble(
    user: bytes, block: bytes, *, adopt: bool = False, absent: bool = False
) -> tuple[bytes, HostsFile]:
    """Return the content of a file with the user's bytes and, last, the block; and what `parse` makes of it.

    Without lines there is no block. If all of the user's lines end in CRLF, nodeagent's do. `adopt` leaves
    out the lines of hairpin-proxy; `absent`: there was no file before.
    """
    kept = without_legacy_lines(user) if adopt else user
    count = kept.count(b"\n") + (not kept.endswith(b"\n") and bool(kept))
    numbers = tuple(range(1, count + 1))
    if not block:
        return kept, HostsFile(kept, None, (), line_numbers=numbers)
    newlines = kept.count(b"\n")
    end_of_line = b"\r\n" if newlines and newlines == kept.count(b"\r\n") else b"\n"
    lines = block if end_of_line == b"\n" else block.replace(b"\n", end_of_line)
    file = HostsFile(kept, lines, (), absent and not kept, numbers)
    begin = BEGIN
    if kept and not kept.endswith(b"\n"):
        begin += b" (no newline at byte %d)" % len(kept)
        kept += end_of_line
    elif file.absent:
        begin += _ABSENT
    return b"".join((kept, begin, end_of_line, lines, END, end_of_line)), file


def written(lines: Iterable[HostsLine]) -> bytes:
    """Return the lines with their ends. Raises ApplyError for a name that is no hostname."""
    return b"".join(map(_written, lines))


def replaced(block: bytes, old: Sequence[HostsLine], new: Sequence[HostsLine]) -> bytes:
    """Return a block, sorted by name, in which the new lines replace all of their names, and of the old."""
    texts = {line.name.encode(): b"" for line in old}
    for line, encoded in zip(new, map(_written, new), strict=True):
        texts[line.name.encode()] = texts.get(line.name.encode(), b"") + encoded

    def name_at(offset: int) -> bytes:
        return block[block.rfind(b"\n", 0, offset) + 1 : block.index(b"\n", offset)].partition(b"\t")[2]

    pieces: list[bytes] = []
    done, offsets = 0, range(len(block))
    for name in sorted(texts):
        start = bisect_left(offsets, name, done, key=name_at)
        pieces += (block[done:start], texts[name])
        done = bisect_right(offsets, name, start, key=name_at)
    return b"".join((*pieces, block[done:]))


def _written(line: HostsLine) -> bytes:
    if _SAFE_NAME.fullmatch(line.name) is None:
        raise ApplyError(
            f"not writing the name {line.name!r} into a hosts file: it contains a character that a hostname "
            "can't have, or is longer than 253 characters. The file was left as it was"
        )
    return f"{line.address}\t{line.name}\n".encode("ascii")


def count_changes(before: bytes, after: bytes) -> tuple[int, int]:
    """Return how many lines are new, and how many are gone, whatever their ends."""
    old, new = ({*block.splitlines()} for block in (before, after))
    return len(new - old), len(old - new)


def shared_prefix(one: bytes, other: bytes) -> int:
    """Return the number of leading bytes that both have."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def addresses_by_name(block: bytes) -> dict[str, frozenset[IPAddress]]:
    """Read the lines of a block, also a user's between the markers; what can't be written does not count."""
    parsed = lru_cache(ip_address)  # most lines have one of a few addresses
    addresses: dict[str, frozenset[IPAddress]] = {}
    for line in block.split(b"\n"):
        field, names = hosts_fields(line)
        with suppress(ValueError):
            address = parsed(field)
            for name in filter(_SAFE_NAME.fullmatch, names):
                addresses[name] = intern(addresses.get(name, frozenset()) | {address})
    return addresses


@dataclass(slots=True)
class _Claim:
    """The lines that `parse` takes for nodeagent's, by index; filled by `_claim`."""

    ours: set[int] = field(default_factory=set)
    inside: list[int] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    last_begin: int | None = None

    def take(self, markers: Sequence[int], inside: Sequence[int]) -> None:
        self.ours.update(markers, inside)
        self.inside.extend(inside)


def _claim(lines: Sequence[bytes], own: OwnLines) -> _Claim:
    claim = _Claim()
    opened: int | None = None
    for number, line in enumerate(lines):
        if line.startswith(BEGIN) and line[len(BEGIN) :][:1] in b" \t\r\n":
            if opened is not None:
                _claim_unmatched(claim, lines, opened, own, 1)
            opened = claim.last_begin = number
        elif line.rstrip() == END and opened is not None:
            claim.take((opened, number), range(opened + 1, number))
            opened = None
        elif line.rstrip() == END:
            _claim_unmatched(claim, lines, number, own, -1)
    if opened is not None:
        _claim_unmatched(claim, lines, opened, own, 1)
    last = lines[-1] if lines and len(lines) - 1 not in claim.ours else b""
    if last.startswith(_TORN_BEGIN_AT_LEAST) and BEGIN.startswith(last) and last != BEGIN:
        claim.take((len(lines) - 1,), ())
        claim.problems.append(Problem(len(lines), "truncated BEGIN marker: it is removed"))
    return claim


def _claim_unmatched(
    claim: _Claim, lines: Sequence[bytes], marker: int, own: OwnLines, step: Literal[1, -1]
) -> None:
    """Claim a marker that lacks the other one, and nodeagent's lines next to it, in the direction `step`."""
    end = marker + step
    while 0 <= end < len(lines) and end not in claim.ours and own.whole(lines[end]):
        end += step
    inside = sorted(range(marker + step, end, step))
    claim.take((marker,), inside)
    last = lines[end] if step > 0 and end == len(lines) - 1 else b"\n"
    cut_off = not last.endswith(b"\n") and (END.startswith(last) or own.torn(last))
    if cut_off:
        claim.take((end,), ())
    name, missing, beside = ("BEGIN", "END", "below") if step > 0 else ("END", "BEGIN", "above")
    claim.problems.append(
        Problem(
            marker + 1,
            f"{name} marker without its {missing}: only it and the {len(inside) + cut_off} line(s) of "
            f"nodeagent right {beside} it are replaced, everything else is kept as yours",
        )
    )


def _as_found(user: bytes, marker: bytes | None, *, added_to: bool) -> tuple[bytes, bool]:
    """Undo what the BEGIN line notes; return the user's bytes, and whether there was no file before."""
    if marker is None:
        return user, False
    notes = marker[len(BEGIN) :]
    if not user:
        return user, _ABSENT in notes
    added = b"\r\n" if marker.endswith(b"\r\n") else b"\n"
    noted = _NO_NEWLINE.search(notes)
    if noted is None or not added_to or not user.endswith(added):
        return user, False
    original = user.removesuffix(added)
    untouched = len(original) == int(noted[1]) > 0 and not original.endswith(b"\n")
    return (original if untouched else user), False
