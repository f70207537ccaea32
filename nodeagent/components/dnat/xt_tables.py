"""One legacy table, read and changed. EFFECTS: the only importer of python-iptables.

Whether a table holds anything of nodeagent's is asked without it: it takes 13 MB and 0.2 s to import, and the
nftables backend asks, too. To name a table to the kernel creates it (xt_find_table_lock()), so /proc is read
first.

Of python-iptables, only `Table` and `Table6` are used. With `autocommit=True`, `refresh()` swallows a failed
commit: it is off. A `Table` is one object for the whole process, which keeps its handle in another network
namespace or thread: each use opens it, closes it, and holds this module's lock. The programs' lock, which
python-iptables does not take, is held as well, or a commit could undo another program's.
"""

import ctypes
import fcntl
import os
import re
import secrets
import socket
import struct
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from nodeagent.components.dnat import xt_rules
from nodeagent.components.dnat.xt_rules import PREFIX, PROGRAMS, Entry, Key, Table, TableName
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Family

_ATTEMPTS = 5
_IP: Final[dict[Family, str]] = {4: "ip", 6: "ip6"}
_BYTES_IN_TEXT = re.compile(r"""b(['"])(.*)\1""")

_one_at_a_time = threading.RLock()

_PAUSE_SECONDS = 0.02
_WAIT_SECONDS = 10.0
"""For the lock: longer than kube-proxy's restore of a large table takes, shorter than a person waits."""

# include/uapi/linux/netfilter_ipv4/ip_tables.h and netfilter_ipv6/ip6_tables.h: the same numbers in both.
_GET_INFO, _GET_ENTRIES = 64, 65
_INFO = struct.Struct("@32s12I")  # name, valid_hooks, hook_entry[5], underflow[5], num_entries; then size
_GET = struct.Struct("@32sI4x")  # name, size; the entries follow, aligned to 8

_libc = ctypes.CDLL(None, use_errno=True)


class XtError(ApplyError):
    """libiptc reported an error: the text has its message."""


class XtMissingError(XtError):
    """The kernel has no such table, nor a module for it that it could load."""


def read_table(key: Key) -> Table:
    """Return nodeagent's part of a table, which is not created. Raises ApplyError, or PermissionError."""
    try:
        if not _holds_ours(*key):
            return Table()
    except PermissionError:
        raise  # of an ordinary user
    except OSError as error:
        raise ApplyError(f"could not list the kernel's legacy tables: {error.strerror}") from error
    with _opened(*key) as handle:
        return _part(key[0], handle)


def change_table(key: Key, wanted: Table) -> None:
    """Change nodeagent's part in one commit, with the xtables lock held. Idempotent. Raises XtError."""
    for _ in range(_ATTEMPTS):
        try:
            with _opened(*key) as handle:
                actual = _part(key[0], handle)
                if actual != wanted:
                    _write(key[0], handle, actual, wanted)
                    handle.commit()
                return
        except XtError as error:
            if "temporarily unavailable" not in str(error):  # EAGAIN: xt_replace_table()
                raise
    raise XtError(
        f"{PROGRAMS[key[0]]}: another program changed table {key[1]} {_ATTEMPTS} times "
        "between reading and commit, and takes no lock; none of its rules was changed"
    )


@contextmanager
def _opened(family: Family, name: TableName) -> Iterator[Any]:
    """Yield the table, freshly read; changes not committed in the block are dropped at its end."""
    with _one_at_a_time:
        library = _library()
        kind = library.Table if family == 4 else library.Table6
        handle = None
        try:
            handle = kind(name, autocommit=False)
            handle.refresh()
            yield handle
        except library.IPTCError as error:
            raise _explained(family, name, error) from error
        finally:
            if handle is not None:
                handle.close()


def _part(family: Family, handle: Any) -> Table:  # noqa: ANN401 - python-iptables has no types
    chains: dict[str, tuple[Entry, ...]] = {}
    jumps: dict[str, tuple[tuple[int, Entry], ...]] = {}
    for name in [chain.name for chain in handle.chains]:
        if name.startswith(PREFIX):
            chains[name] = tuple(entry for _, entry in _entries(family, handle, name))
        elif handle.builtin_chain(name) and (entries := tuple(_entries(family, handle, name, only=PREFIX))):
            jumps[name] = entries
    return Table(chains, jumps)


def _entries(family: Family, handle: Any, chain: str, only: str = "") -> Iterator[tuple[int, Entry]]:  # noqa: ANN401
    """Yield the place, from 1, and the entry of each rule whose target begins with `only`."""
    place, rule = 1, handle.first_rule(chain)
    while rule:
        target = (handle.get_target(rule) or b"").decode(errors="replace")
        if target.startswith(only):
            raw = ctypes.string_at(ctypes.addressof(rule), rule.next_offset)
            yield place, xt_rules.unpacked(family, raw, target)
        place, rule = place + 1, handle.next_rule(rule)


def _write(family: Family, handle: Any, actual: Table, wanted: Table) -> None:  # noqa: ANN401
    """Write chains before anything leads to them, and delete them once nothing does."""
    written = [name for name, entries in wanted.chains.items() if actual.chains.get(name) != entries]
    gone = [name for name in actual.chains if name not in wanted.chains]
    for name in (*written, *gone):
        if name in actual.chains:
            handle.flush_entries(name)
        else:
            handle.create_chain(name)
    for name in written:
        for entry in wanted.chains[name]:
            handle.append_entry(name, _buffer(family, entry))
    for chain in {*actual.jumps, *wanted.jumps}:
        before, after = actual.jumps.get(chain, ()), wanted.jumps.get(chain, ())
        if before != after:
            for place, entry in reversed(before):
                # delete_entry() takes a rule, not its place: so that place gets one that no other equals.
                placeholder = xt_rules.XtRule(entry.target, comment=secrets.token_hex(16))
                unique = _buffer(family, xt_rules.entry_of(family, placeholder))
                whole = ctypes.create_string_buffer(b"\xff" * len(unique), len(unique))
                handle.replace_entry(chain, unique, place - 1)
                handle.delete_entry(chain, unique, whole)
            for place, entry in after:
                handle.insert_entry(chain, _buffer(family, entry), place - 1)
    for name in gone:
        handle.delete_chain(name)


def _buffer(family: Family, entry: Entry) -> "ctypes.Array[ctypes.c_char]":
    raw = xt_rules.packed(family, entry)
    return ctypes.create_string_buffer(raw, len(raw))


def _explained(family: Family, name: TableName, error: Exception) -> XtError:
    program = PROGRAMS[family]
    reason = _BYTES_IN_TEXT.sub(r"\2", str(error))
    problem = f"{program}: table {name}: {reason}; none of its rules was changed."
    if "ermission denied" in reason or "not permitted" in reason:
        return XtError(
            f"{problem} It needs root, or CAP_NET_ADMIN and CAP_NET_RAW (in Kubernetes: "
            "daemonset/overlays/iptables)."
        )
    if "can't initialize" in reason:
        modules = f"{_IP[family]}_tables and {_IP[family]}table_{name}"
        return XtMissingError(
            f"{problem} The kernel has no legacy {program} here: load {modules} on the host (modprobe)."
        )
    return XtError(problem)


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


def lock_path() -> Path:
    """Return the file that iptables locks; the environment variable is its own."""
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
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() >= deadline:
                raise ApplyError(
                    f"another program has held {path} for {_WAIT_SECONDS:g} seconds; no iptables rule was "
                    f"changed. It is tried again. `fuser -v {path}` on the host shows which program it is."
                )
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)  # which releases the lock


def missing_nat(family: Family) -> str:
    """Return what the kernel lacks for its table nat, made if it can; empty if that is not known."""
    try:
        _info(family, "nat")
    except PermissionError:
        return ""
    except OSError as error:
        return (
            f"the kernel has no legacy table nat of {PROGRAMS[family]} ({error.strerror}): modprobe "
            f"{_IP[family]}table_nat on the host"
        )
    return ""


def _holds_ours(family: Family, table: TableName) -> bool:
    """Whether the table exists in this network namespace, with one of nodeagent's chains. Raises OSError."""
    # thread-self: /proc/net is that of the process's first thread, in whatever namespace that is.
    try:
        existing = Path(f"/proc/thread-self/net/{_IP[family]}_tables_names").read_text("ascii").split()
    except FileNotFoundError:  # without the kernel's module
        return False
    while table in existing:
        with suppress(BlockingIOError):  # the table has changed between the two queries
            size = struct.unpack_from("@I", _info(family, table), _INFO.size)[0]
            entries = _get(family, _GET_ENTRIES, _GET.pack(table.encode("ascii"), size) + bytes(size))
            # A chain's head has its name (xt_error_target).
            return PREFIX.encode("ascii") in entries
    return False


def _info(family: Family, table: TableName) -> bytes:
    return _get(family, _GET_INFO, _INFO.pack(table.encode("ascii"), *([0] * 12)) + bytes(4))


def _get(family: Family, option: int, question: bytes) -> bytes:
    """Call getsockopt(2) with what is requested; Python's own passes none."""
    kind = socket.AF_INET6 if family == 6 else socket.AF_INET
    level = socket.IPPROTO_IPV6 if family == 6 else socket.IPPROTO_IP
    buffer = ctypes.create_string_buffer(question, len(question))
    length = ctypes.c_uint32(len(question))
    with socket.socket(kind, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        if _libc.getsockopt(control.fileno(), level, option, buffer, ctypes.byref(length)) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    return buffer.raw
