"""The nftables backend: the table `inet nodeagent`, and no other. Effects by nft.

Transactions are text, not JSON: nft 1.0.6 turns a map to `address . port` that is given as JSON silently into
a set. nft is a process of its own: libnftables inside Python crashed the interpreter on nodeagent's map. The
first line of standard error shows the kind of a failure: nft's messages have no translations, nor with
LC_ALL=C those of the C library.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from errno import EAGAIN, EBUSY, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM

from nodeagent.components.dnat.nft_table import DIGEST, TABLE, mark, parsed, state_of, structure
from nodeagent.components.dnat.state import DnatChange, DnatState, comment_of
from nodeagent.errors import ApplyError
from nodeagent.linux.netlink import NFTABLES_GROUPS, Notifications, nftables_socket
from nodeagent.linux.programs import find_program, run_program
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import DnatRules

_AT_LINE = re.compile(r"^[^\s:]*stdin:(\d+):")
_DENIED = "Operation not permitted"
# The texts of temporary errors, as nft prints them.
_PASSING = tuple(map(os.strerror, (EAGAIN, EBUSY, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM)))

# include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h
_NFPROTO_INET = 1
_NEWGEN = 15
_NEEDLE = TABLE.encode() + b"\0"


def replacement(desired: DnatRules) -> str:
    """Return the text that replaces any table of its name with the whole table, in one transaction.

    With `add` before `delete`, the deletion also succeeds without a table. A new connection's packet at the
    moment of the commit may see chains without rules, or sets without ranges (observed on Linux 6.18: with
    2,000 new connections a second, two in a hundred commits let one of a pod's pass).
    """
    return _emptied(desired) + "".join(_additions(desired))


def _emptied(desired: DnatRules) -> str:
    return f"add table inet {TABLE}\ndelete table inet {TABLE}\n" + structure(desired)


def _delta(change: DnatChange) -> str:
    """Return deletions first: an added element may replace one."""
    keys = [(f"lb{rule.match.address.version}", _endpoint(rule.match)) for rule in change.removed.redirects]
    gone = (
        f"delete element inet {TABLE} {where} {{ {key} }}\n"
        for where, key in (*keys, *_elements(change.removed))
    )
    return "".join((*gone, *_additions(change.added)))


def _additions(rules: DnatRules) -> Iterator[str]:
    for rule in rules.redirects:
        element = f'{_endpoint(rule.match)} comment "{comment_of(rule.load_balancer)}" : {_endpoint(rule.to)}'
        yield f"add element inet {TABLE} lb{rule.match.address.version} {{ {element} }}\n"
    for where, element in _elements(rules):
        yield f"add element inet {TABLE} {where} {{ {element} }}\n"


def _elements(rules: DnatRules) -> Iterator[tuple[str, str]]:
    for name, networks in rules.ranges.items():
        yield from ((f"{name}{network.version}", str(network)) for network in networks)


def _endpoint(endpoint: Endpoint) -> str:
    return f"{endpoint.address} . {endpoint.port:d}"


class NftError(ApplyError):
    """nft rejected the script: the text has its message and the script's line."""


class NftPermissionError(NftError):
    """The kernel requires CAP_NET_ADMIN, for reading as for writing."""


class NftBusyError(NftError):
    """The node could not run it now (no time, memory or descriptors): that says nothing about the kernel."""


class NftMissingError(ApplyError):
    """There is no nft program on this node."""


class NftablesWatch(Notifications):
    """Implements `component.Watch`: transactions about `inet nodeagent`, whose end names the process."""

    def __init__(self) -> None:
        self._concerned = False
        super().__init__(
            nftables_socket(), NFTABLES_GROUPS, lambda datagram: self._concerned or _NEEDLE in datagram
        )

    def drain(self) -> str:
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
        done = self._start(["-j", "-n", "list", "table", "inet", TABLE], "")
        if done.returncode == 0:
            return state_of(done.stdout)
        message = _message(done)
        # "; did you mean table ... in family ip?" may follow.
        if message.startswith("Error: No such file or directory"):
            return DnatState()
        if _DENIED in message:
            return DnatState(unreadable=f"the table inet {TABLE} can't be read without root or CAP_NET_ADMIN")
        raise _error(message, f"nft could not list the table inet {TABLE}: {message}")

    def script(self, change: DnatChange) -> str:
        match change.action:
            case "delete":
                return f"delete table inet {TABLE}\n"
            case "none" | "alter":
                return _delta(change)
            case "create" | "repair":
                return replacement(change.desired)

    def run(self, change: DnatChange) -> str:
        """Apply the change. A new table that gets no mark is replaced next time."""
        # nft takes 0.2 s to echo 5,000 elements: those of a new table come with its mark.
        elements = "".join(_additions(change.desired)) if change.action == "create" else ""
        script = _emptied(change.desired) if elements else self.script(change)
        if change.action in ("create", "repair"):
            _, digest = parsed(self.execute(script, "-j", "-n", "--echo"))
            comment = mark(change.desired, digest)
            self.execute(f'{elements}add rule inet {TABLE} {DIGEST} return comment "{comment}"\n')
        elif script:
            self.execute(script)
        return ""

    def watch(self) -> NftablesWatch:
        return NftablesWatch()

    def execute(self, script: str, *options: str) -> bytes:
        """Run it, all of it or nothing; return what nft prints. Raises NftError, NftMissingError."""
        done = self._start([*options, "-f", "-"], script)
        if done.returncode != 0:
            message, lines = _message(done), script.splitlines()
            match = _AT_LINE.match(message)
            number = int(match[1]) if match else 0
            line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
            at = f'\n  line of the transaction: "{line}"' if line else ""
            raise _error(message, f"nft rejected the transaction, nothing was changed: {message}{at}")
        return done.stdout

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


def _error(message: str, problem: str) -> NftError:
    if _DENIED in message:
        return NftPermissionError(f"{problem}\n  It needs root or CAP_NET_ADMIN.")
    return NftBusyError(problem) if message.endswith(_PASSING) else NftError(problem)
