"""The nftables backend: the table `inet nodeagent`, and no other. Effects by nft.

nft is a process of its own: libnftables inside Python crashed the interpreter on nodeagent's map (1.0.6). The
first line of standard error shows the kind of a failure: nft's messages have no translations, nor with
LC_ALL=C those of the C library.
"""

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass, replace
from errno import EAGAIN, EBUSY, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM
from ipaddress import ip_address, ip_network

import msgspec
from msgspec import Raw, Struct

from nodeagent.components.dnat.nft_script import DIGEST, RANGES, TABLE, mark, marking
from nodeagent.components.dnat.nft_script import script as nft_script
from nodeagent.components.dnat.state import DnatChange, DnatState, ordered, owner_of
from nodeagent.errors import ApplyError
from nodeagent.linux.netlink import NFTABLES_GROUPS, Notifications, nftables_socket
from nodeagent.linux.programs import find_program, run_program
from nodeagent.model.addresses import Endpoint, IPNetwork
from nodeagent.model.desired import DnatRules, Redirect
from nodeagent.typed_values import from_json

# The listing's format is libnftables-json(5). Versions of nft print the same table differently, so nothing of
# it is compared with a text of nodeagent's. nft echoes each transaction as the kernel took it, in the format
# of its listings: a digest of that, in a comment of the table, is what a listing's digest is compared with.


class _Listing(Struct):
    nftables: list[dict[str, dict[str, Raw]]]


class _Bare(Struct):
    """An address with a port; or an element that has a comment."""

    concat: tuple[str, int] | None = None
    elem: "_Element | None" = None


class _Element(Struct):
    val: _Bare
    comment: str = ""


_Fields = dict[str, Raw]
_Items = list[tuple[str, _Fields]]
_NO_OBJECTS = {"metainfo", "delete"}
_NO_STRUCTURE = {"elem", "handle"}


@dataclass(frozen=True, slots=True)
class NftState(DnatState):
    """A table as it was read, with its mark and the digest of its structure."""

    mark: str = ""
    listed: str = ""

    def compared(self, desired: DnatRules) -> "NftState":
        """See `DnatState.compared`."""
        if self.mark == mark(desired, self.listed):
            return self
        altered = (
            "a chain, rule, map or set was added, altered or removed, or another version of nft made it"
            if not self.mark.endswith(self.listed)
            else "it was made with other options, or by another version of nodeagent"
        )
        return replace(self, damage=(*self.damage, f"table inet {TABLE}: {altered}"))


def _parsed(text: bytes) -> tuple[_Items, str]:
    """Return each object that a listing or an echo shows, after its kind; and their digest.

    Elements do not count in it; each chain's rules count in their order. Raises ApplyError if it is neither.
    """
    items: _Items = []
    objects: dict[str, object] = {}
    rules: dict[str, list[object]] = {}
    try:
        for item in from_json(text, _Listing).nftables:
            for kind, body in item.items():
                if kind == "add":  # in an echo, each is below what was done with it
                    items += (
                        (made, from_json(raw, _Fields)) for made, raw in body.items() if made != "element"
                    )
                elif kind not in _NO_OBJECTS:
                    items.append((kind, body))
        for kind, body in items:
            kept = sorted((name, bytes(body[name]).decode()) for name in body.keys() - _NO_STRUCTURE)
            if kind != "rule":
                objects[f"{kind} {_text(body, 'name')}"] = kept
            elif (chain := _text(body, "chain")) != DIGEST:
                rules.setdefault(chain, []).append(kept)
    except msgspec.DecodeError as error:
        raise ApplyError(
            f"DNAT: nft's listing of the table could not be understood ({error}); nothing was changed. "
            "Compare the output of `nft -j list table inet nodeagent` with libnftables-json(5)."
        ) from error
    whole = msgspec.json.encode([sorted(objects.items()), sorted(rules.items())])
    return items, hashlib.sha256(whole).hexdigest()[:16]


def _text(body: _Fields, name: str) -> str:
    return from_json(body.get(name, Raw(b'""')), str)


def state_of(listing: bytes) -> NftState:
    """Return the state that the output of `nft -j list table inet nodeagent` shows. Raises ApplyError."""
    items, listed = _parsed(listing)
    redirects: list[Redirect] = []
    ranges: dict[str, list[IPNetwork]] = {name: [] for name in RANGES}
    marks: list[str] = []
    damage: list[str] = []
    for kind, body in items:
        name, elements = _text(body, "name"), body.get("elem", Raw(b"[]"))
        try:
            if kind == "map":
                redirects += map(_redirect, from_json(elements, list[tuple[_Bare, _Bare]]))
            elif kind == "set" and name[:-1] in ranges:
                ranges[name[:-1]] += map(_network, from_json(elements, list[object]))
            elif kind == "rule" and _text(body, "chain") == DIGEST:
                marks.append(_text(body, "comment"))
        except (msgspec.ValidationError, ValueError) as error:
            damage.append(f"{kind} {name} has an element that can't be nodeagent's ({error})")
    rules = ordered(redirects, *ranges.values())
    return NftState(rules, present=True, damage=tuple(damage), mark="; ".join(marks), listed=listed)


def _redirect(pair: tuple[_Bare, _Bare]) -> Redirect:
    key, value = pair
    element = key.elem or _Element(key)
    return Redirect(_endpoint(element.val), _endpoint(value), owner_of(element.comment))


def _endpoint(value: _Bare) -> Endpoint:
    if value.concat is None:
        raise ValueError("no address with a port")
    return Endpoint(ip_address(value.concat[0]), value.concat[1])


def _network(element: object) -> IPNetwork:
    match element:
        case {"elem": {"val": bare}}:
            return _network(bare)
        case {"prefix": {"addr": str(address), "len": int(length)}}:
            return ip_network(f"{address}/{length}")
        case str(address):
            return ip_network(address)
        case _:
            raise ValueError("neither an address nor a prefix")


_AT_LINE = re.compile(r"^[^\s:]*stdin:(\d+):")

_DENIED = "Operation not permitted"
# The texts of temporary errors, as nft prints them.
_PASSING = tuple(map(os.strerror, (EAGAIN, EBUSY, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM)))


class NftError(ApplyError):
    """nft rejected the script: the text has its message and the script's line."""


class NftPermissionError(NftError):
    """The kernel requires CAP_NET_ADMIN, for reading as for writing."""


class NftBusyError(NftError):
    """The node could not run it now (no time, memory or descriptors): that says nothing about the kernel."""


class NftMissingError(ApplyError):
    """There is no nft program on this node."""


# include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h
_NFPROTO_INET = 1
_NEWGEN = 15
_NEEDLE = TABLE.encode() + b"\0"


class NftablesWatch(Notifications):
    """Implements `component.Watch`: every transaction that touches the table `inet nodeagent`.

    The kernel sends a message for each object of a transaction, and NFT_MSG_NEWGEN at the end, which names
    the process. The large transactions of kube-proxy cost one search for nodeagent's name in each datagram.
    """

    def __init__(self) -> None:
        self._concerned = False
        # The end of a transaction matters only if it contains something of nodeagent's.
        super().__init__(
            nftables_socket(), NFTABLES_GROUPS, lambda datagram: self._concerned or _NEEDLE in datagram
        )

    def drain(self) -> str:
        """See `component.Watch`. A transaction is reported when its end has arrived."""
        programs: dict[str, None] = {}
        for message in self.messages():
            if message["header"]["type"] & 0xFF != _NEWGEN:
                ours = message["nfgen_family"] == _NFPROTO_INET and message.get_attr("TABLE") == TABLE
                self._concerned = self._concerned or ours
            elif self._concerned:
                process, name = message.get_attr("NFTA_GEN_PROC_PID"), message.get_attr("NFTA_GEN_PROC_NAME")
                programs[f"{name or 'unknown'}, process {process} of the host"] = None
                self._concerned = False
        return f"table inet {TABLE} was changed by {'; '.join(programs)}" if programs else ""


class NftablesBackend:
    """Implements `state.DnatBackend` on the nft program, each run for at most so many seconds."""

    name = "nftables"

    def __init__(self, timeout: float = 30.0) -> None:
        self._timeout = timeout

    def read(self) -> DnatState:
        """See `DnatBackend.read`."""
        try:
            listing = self.list_table()
        except NftPermissionError:
            return DnatState(unreadable=f"the table inet {TABLE} can't be read without root or CAP_NET_ADMIN")
        return DnatState() if listing is None else state_of(listing)

    def script(self, change: DnatChange) -> str:
        """See `DnatBackend.script`: as `nft -f -` takes it."""
        return nft_script(change)

    def run(self, change: DnatChange) -> str:
        """See `DnatBackend.run`. A new table that gets no mark is replaced next time."""
        script = nft_script(change)
        if change.action in ("create", "repair"):
            _, made = _parsed(self.execute(script, "-j", "-n", "--echo"))
            self.execute(marking(change.desired, made))
        elif script:
            self.execute(script)
        return ""

    def watch(self) -> NftablesWatch:
        """See `DnatBackend.watch`."""
        return NftablesWatch()

    def execute(self, script: str, *options: str) -> bytes:
        """Run `script`, all of it or nothing; return what nft prints. Raises NftError, NftMissingError."""
        done = self._start([*options, "-f", "-"], script)
        if done.returncode != 0:
            message, lines = _message(done), script.splitlines()
            found = _AT_LINE.match(message)
            number = int(found[1]) if found else 0
            text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
            at = f'\n  line of the transaction: "{text}"' if text else ""
            raise _error(message, f"nft rejected the transaction, nothing was changed: {message}{at}")
        return done.stdout

    def list_table(self) -> bytes | None:
        """Return the table as JSON (libnftables-json(5)); None if there is none. Errors as in `execute`."""
        done = self._start(["-j", "-n", "list", "table", "inet", TABLE], "")
        if done.returncode == 0:
            return done.stdout
        message = _message(done)
        # "; did you mean table ... in family ip?" may follow.
        if message.startswith("Error: No such file or directory"):
            return None
        raise _error(message, f"nft could not list the table inet {TABLE}: {message}")

    def _start(self, arguments: list[str], script: str) -> subprocess.CompletedProcess[bytes]:
        program = find_program("nft")
        if program is None:
            raise NftMissingError(
                "There is no nft program on this node (Debian and Ubuntu: apt-get install nftables); no DNAT "
                "rule was read or changed. Install it, or set dnat.backend: none."
            )
        try:
            return run_program([program, *arguments], self._timeout, script)
        except subprocess.TimeoutExpired as error:
            raise NftBusyError(
                f"nft did not end within {self._timeout:g} seconds and was stopped; the kernel applied "
                "its transaction completely or not at all. The next pass reads the actual state."
            ) from error
        except OSError as error:
            kind = NftBusyError if error.strerror in _PASSING else ApplyError
            raise kind(f"{program} could not be started: {error.strerror}.") from error


def _message(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").splitlines()
    return lines[0] if lines else f"exit code {done.returncode} without a message"


def _error(message: str, text: str) -> NftError:
    if _DENIED in message:
        return NftPermissionError(f"{text}\n  It needs root or CAP_NET_ADMIN.")
    return NftBusyError(text) if message.endswith(_PASSING) else NftError(text)
