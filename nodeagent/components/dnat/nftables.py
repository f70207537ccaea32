"""The nftables backend: read, compare and change the table `inet nodeagent`, and no other. Effects by nft.

nft is a process of its own, as knftables starts it: libnftables inside Python crashed the interpreter on
nodeagent's map (1.0.6). The exit code shows success, the first line of standard error the kind of a failure;
nft's messages have no translations, and with LC_ALL=C those of the C library have none either.
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
from nodeagent.components.dnat.state import DnatChange, DnatState, in_order, owner_of
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
    nftables: list[dict[str, Raw]]


class _Item(Struct):
    """A table, chain, map, set or rule: what is read of it, besides its digest."""

    name: str = ""
    chain: str = ""
    comment: str = ""
    elem: Raw = Raw(b"[]")


_Items = list[tuple[str, Raw]]
_NO_OBJECTS = {"metainfo", "delete", "element"}
_NO_STRUCTURE = {"elem", "handle"}


@dataclass(frozen=True, slots=True)
class NftState(DnatState):
    """A table as it was read, with its mark and the digest of its structure."""

    mark: str = ""
    listed: str = ""


def _items(text: bytes) -> _Items:
    """Return each object that a listing or an echo shows, after its kind."""
    try:
        items: _Items = []
        for item in from_json(text, _Listing).nftables:
            for kind, body in item.items():
                # In an echo, each is below what was done with it.
                items += from_json(body, dict[str, Raw]).items() if kind == "add" else [(kind, body)]
        return [(kind, body) for kind, body in items if kind not in _NO_OBJECTS]
    except msgspec.DecodeError as error:
        raise _unknown_format(error) from error


def _digest(items: _Items) -> str:
    """Return the digest of all objects without elements: each chain's rules count in their order."""
    objects: dict[str, object] = {}
    rules: dict[str, list[object]] = {}
    for kind, body in items:
        fields = from_json(body, dict[str, Raw])
        kept = sorted((name, bytes(fields[name]).decode()) for name in fields.keys() - _NO_STRUCTURE)
        item = from_json(body, _Item)
        if kind != "rule":
            objects[f"{kind} {item.name}"] = kept
        elif item.chain != DIGEST:
            rules.setdefault(item.chain, []).append(kept)
    whole = msgspec.json.encode([sorted(objects.items()), sorted(rules.items())])
    return hashlib.sha256(whole).hexdigest()[:16]


def _unknown_format(error: msgspec.DecodeError) -> ApplyError:
    return ApplyError(
        f"DNAT: nft's listing of the table could not be understood ({error}); nothing was changed. "
        "Compare the output of `nft -j list table inet nodeagent` with libnftables-json(5)."
    )


def state_of(listing: bytes) -> NftState:
    """Return the state that a listing of nodeagent's table shows.

    Args:
        listing: The standard output of `nft -j list table inet nodeagent`.

    Returns:
        The entries and ranges in order.

    Raises:
        ApplyError: this is not a listing of nft.
    """
    items = _items(listing)
    redirects: list[Redirect] = []
    ranges: dict[str, list[IPNetwork]] = {name: [] for name in RANGES}
    marks: list[str] = []
    damage: list[str] = []
    try:
        for kind, body in items:
            item = from_json(body, _Item)
            try:
                if kind == "map":
                    redirects += map(_redirect, from_json(item.elem, list[tuple[object, object]]))
                elif kind == "set" and item.name[:-1] in ranges:
                    ranges[item.name[:-1]] += map(_network, from_json(item.elem, list[object]))
                elif kind == "rule" and item.chain == DIGEST:
                    marks.append(item.comment)
            except (msgspec.ValidationError, ValueError) as error:
                damage.append(f"{kind} {item.name} has an element that can't be nodeagent's ({error})")
        listed = _digest(items)
    except msgspec.DecodeError as error:
        raise _unknown_format(error) from error
    rules = DnatRules(
        tuple(sorted(redirects, key=lambda redirect: redirect.match.sort_key())),
        in_order(ranges["pods"]),
        in_order(ranges["guarded"]),
        in_order(ranges["admitted"]),
        in_order(ranges["balancers"]),
    )
    return NftState(rules, present=True, damage=tuple(damage), mark="; ".join(marks), listed=listed)


def _redirect(element: tuple[object, object]) -> Redirect:
    key, value = element
    match key:
        case {"elem": {"comment": str(comment)}}:
            return Redirect(_endpoint(key), _endpoint(value), owner_of(comment))
        case _:
            return Redirect(_endpoint(key), _endpoint(value), owner_of(""))


def _endpoint(element: object) -> Endpoint:
    match element:
        case {"elem": {"val": bare}}:  # as an element is that has a comment
            return _endpoint(bare)
        case {"concat": [str(address), int(port)]}:
            return Endpoint(ip_address(address), port)
        case _:
            raise ValueError("no address with a port")


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

    The kernel sends every committed transaction of the network namespace as messages of the netfilter
    subsystem NFNL_SUBSYS_NFTABLES, one for each object, and NFT_MSG_NEWGEN at the end, which names the
    process. The large ones of kube-proxy cost one search for nodeagent's name in each datagram.

    Only CAP_NET_ADMIN may listen (netlink_allowed(); nfnetlink sets no NL_CFG_F_NONROOT_RECV).
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
    """Implements `state.DnatBackend` on the nft program.

    Args:
        timeout: Seconds after which a run of it is given up; 5,000 entries take 0.1.
    """

    name = "nftables"

    def __init__(self, timeout: float = 30.0) -> None:
        self._timeout = timeout

    def read(self) -> DnatState:
        """Read the table; see `DnatBackend.read`."""
        try:
            listing = self.list_table()
        except NftPermissionError:
            return DnatState(unreadable=f"the table inet {TABLE} can't be read without root or CAP_NET_ADMIN")
        return DnatState() if listing is None else state_of(listing)

    def compared(self, state: DnatState, desired: DnatRules) -> DnatState:
        """Return the state with the damage of its structure; see `DnatBackend.compared`. Pure."""
        if not isinstance(state, NftState) or state.mark == mark(desired, state.listed):
            return state
        altered = (
            "a chain, rule, map or set was added, altered or removed, or another version of nft made it"
            if not state.mark.endswith(state.listed)
            else "it was made with other options, or by another version of nodeagent"
        )
        return replace(state, damage=(*state.damage, f"table inet {TABLE}: {altered}"))

    def script(self, change: DnatChange) -> str:
        """Return the transaction as `nft -f -` takes it; see `DnatBackend.script`. Pure."""
        return nft_script(change)

    def run(self, change: DnatChange) -> str:
        """Apply the change; see `DnatBackend.run`.

        A new table gets its mark by a second transaction; one without it is replaced in the next pass.
        """
        if not (script := nft_script(change)):
            return ""
        if change.action in ("create", "repair"):
            made = _digest(_items(self.execute(script, "-j", "-n", "--echo")))
            self.execute(marking(change.desired, made))
        else:
            self.execute(script)
        return ""

    def watch(self) -> NftablesWatch:
        """See `DnatBackend.watch`."""
        return NftablesWatch()

    def execute(self, script: str, *options: str) -> bytes:
        """Run `script` as one transaction: all of it or nothing, even if this process is killed meanwhile.

        Returns:
            What nft prints: with `--echo`, the objects that were made. With `--check`, nothing is made.

        Raises:
            NftError: it was rejected, or did not end in time.
            NftPermissionError: the process has no CAP_NET_ADMIN.
            NftMissingError: there is no nft.
        """
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
