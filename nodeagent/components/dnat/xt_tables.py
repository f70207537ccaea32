"""One legacy table, read and changed. EFFECTS: the only importer of python-iptables.

It uses `Table` and `Table6`, libiptc's tables, and works around two problems of 1.2.0. With
`autocommit=True`, `refresh()` swallows a failed commit: it is off. A `Table` is one object for the whole
process, which keeps its handle in another network namespace or thread: each use opens it, closes it, and
holds this module's lock.

The programs' lock is held as well: python-iptables takes none, and a commit on top of a table that was read
before another program's commit undoes that one.
"""

import ctypes
import fcntl
import os
import re
import secrets
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from nodeagent.components.dnat.xt_layout import PREFIX, PROGRAMS, Table, TableName
from nodeagent.components.dnat.xt_rules import XtRule, decode, encode
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Family

_ATTEMPTS = 5
_MODULES: Final[dict[Family, str]] = {4: "ip_tables and iptable_{}", 6: "ip6_tables and ip6table_{}"}
_BYTES_IN_TEXT = re.compile(r"""b(['"])(.*)\1""")

_one_at_a_time = threading.RLock()


class XtError(ApplyError):
    """libiptc reported an error: the text has its message."""


class XtMissingError(XtError):
    """The kernel has no such table, nor a module for it that it could load."""


class XtTable:
    """One table of one family, in the caller's network namespace."""

    def __init__(self, family: Family, name: TableName) -> None:
        self._family: Family = family
        self._name: TableName = name

    def read(self) -> Table:
        """Return nodeagent's part of the table, which the kernel returns whole. Raises XtError."""
        with self._open() as handle:
            return self._state(handle)

    def change(self, wanted: Table) -> None:
        """Change nodeagent's part in one commit, with the xtables lock held. Idempotent. Raises XtError."""
        for _ in range(_ATTEMPTS):
            try:
                with self._open() as handle:
                    found = self._state(handle)
                    if found != wanted:
                        self._write(handle, found, wanted)
                        handle.commit()
                    return
            except XtError as error:
                if "temporarily unavailable" not in str(error):  # EAGAIN: xt_replace_table()
                    raise
        raise XtError(
            f"{PROGRAMS[self._family]}: another program changed table {self._name} {_ATTEMPTS} times "
            "between reading and commit, and takes no lock; none of its rules was changed"
        )

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """Yield the table, freshly read; changes not committed in the block are dropped at its end."""
        with _one_at_a_time:
            library = _library()
            kind = library.Table if self._family == 4 else library.Table6
            handle = None
            try:
                handle = kind(self._name, autocommit=False)
                handle.refresh()
                yield handle
            except library.IPTCError as error:
                raise self._explained(error) from error
            finally:
                if handle is not None:
                    handle.close()

    def _state(self, handle: Any) -> Table:  # noqa: ANN401 - python-iptables has no types
        chains: dict[str, tuple[XtRule, ...]] = {}
        jumps: dict[str, tuple[tuple[int, XtRule], ...]] = {}
        for chain in [found.name for found in handle.chains]:
            if chain.startswith(PREFIX):
                chains[chain] = tuple(self._rules(handle, chain))
            elif handle.builtin_chain(chain):
                rules = enumerate(self._rules(handle, chain, only=PREFIX.encode("ascii")), 1)
                found = tuple((place, rule) for place, rule in rules if rule is not None)
                if found:
                    jumps[chain] = found
        return Table(chains, jumps)

    def _rules(self, handle: Any, chain: str, only: bytes = b"") -> Iterator[Any]:  # noqa: ANN401
        """Yield the chain's rules; None in place of each with a target other than `only`."""
        entry = handle.first_rule(chain)
        while entry:
            target = handle.get_target(entry) or b""
            if target.startswith(only):
                raw = ctypes.string_at(ctypes.addressof(entry), entry.next_offset)
                yield decode(self._family, raw, target.decode(errors="replace"))
            else:
                yield None
            entry = handle.next_rule(entry)

    def _write(self, handle: Any, found: Table, wanted: Table) -> None:  # noqa: ANN401
        """Write chains before anything leads to them, and delete them once nothing does."""
        written = [name for name, rules in wanted.chains.items() if found.chains.get(name) != rules]
        gone = [name for name in found.chains if name not in wanted.chains]
        for name in (*written, *gone):
            if name in found.chains:
                handle.flush_entries(name)
            else:
                handle.create_chain(name)
        for name in written:
            for rule in wanted.chains[name]:
                handle.append_entry(name, self._buffer(rule))
        for chain in {*found.jumps, *wanted.jumps}:
            before, after = found.jumps.get(chain, ()), wanted.jumps.get(chain, ())
            if before != after:
                for place, rule in reversed(before):
                    # delete_entry() takes a rule, not its place: so that place gets one that no other equals.
                    unique = self._buffer(XtRule(rule.target, comment=secrets.token_hex(16)))
                    whole = ctypes.create_string_buffer(b"\xff" * len(unique), len(unique))
                    handle.replace_entry(chain, unique, place - 1)
                    handle.delete_entry(chain, unique, whole)
                for place, rule in after:
                    handle.insert_entry(chain, self._buffer(rule), place - 1)
        for name in gone:
            handle.delete_chain(name)

    def _buffer(self, rule: XtRule) -> "ctypes.Array[ctypes.c_char]":
        encoded = encode(self._family, rule)
        return ctypes.create_string_buffer(encoded, len(encoded))

    def _explained(self, error: Exception) -> XtError:
        program = PROGRAMS[self._family]
        text = _BYTES_IN_TEXT.sub(r"\2", str(error))
        told = f"{program}: table {self._name}: {text}; none of its rules was changed."
        if "ermission denied" in text or "not permitted" in text:
            return XtError(
                f"{told} It needs root, or CAP_NET_ADMIN and CAP_NET_RAW (in Kubernetes: daemonset/overlays/"
                "iptables)."
            )
        if "can't initialize" in text:
            modules = _MODULES[self._family].format(self._name)
            return XtMissingError(
                f"{told} The kernel has no legacy {program} here: load {modules} on the host (modprobe)."
            )
        return XtError(told)


@cache
def _library() -> ModuleType:
    """Return python-iptables, imported when it is used: it runs ldconfig and modprobe, and takes 13 MB."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it leaves files open
            import iptc  # noqa: PLC0415
    except Exception as error:
        raise ApplyError(
            f"python-iptables can't be used on this node ({type(error).__name__}: {error}); no iptables rule "
            "was read or changed. It needs libip4tc, libip6tc and libxtables (Debian and Ubuntu: apt-get "
            "install iptables)."
        ) from error
    module: ModuleType = iptc
    return module


_PAUSE_SECONDS = 0.02
_WAIT_SECONDS = 10.0
"""Longer than kube-proxy's restore of a large table takes, shorter than a person waits."""


def lock_path() -> Path:
    """Return the file that iptables locks: its own environment variable overrides the usual one."""
    return Path(os.environ.get("XTABLES_LOCKFILE") or "/run/xtables.lock")


@contextmanager
def xtables_lock() -> Iterator[None]:
    """Hold the lock during the block, as iptables does (iptables/xshared.c). Raises ApplyError."""
    path = lock_path()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ApplyError(
            f"{path} could not be opened ({error.strerror}), and without it, no program may change "
            "iptables' tables; no rule was changed. In a pod it is a volume of type FileOrCreate."
        ) from error
    try:
        # The kubelet makes it readable for all, and each user who can open it could hold it.
        os.fchmod(descriptor, 0o600)
        deadline = time.monotonic() + _WAIT_SECONDS
        while not _acquired(descriptor):
            if time.monotonic() >= deadline:
                raise ApplyError(
                    f"another program has held {path} for {_WAIT_SECONDS:g} seconds; no iptables rule was "
                    f"changed. It is tried again. `fuser -v {path}` on the host shows which program it is."
                )
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)  # which releases the lock


def _acquired(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
