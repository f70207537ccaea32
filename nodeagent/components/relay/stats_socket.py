"""HAProxy's worker, asked over its statistics socket (management manual 9.1 and 9.3)."""

import csv
from pathlib import PurePath

from msgspec import Struct

from nodeagent.components.relay.haproxy_config import SERVER_NAME, parse_proxy_name
from nodeagent.components.relay.unix_socket import Silence, Unreachable, ask
from nodeagent.model.addresses import Endpoint
from nodeagent.model.objects import ObjectRef

# As "show stat" takes types (management manual 9.3): 1 for frontends, 4 for servers.
_FRONTENDS_AND_SERVERS = 1 + 4
_FRONTEND = "FRONTEND"


class Worker(Struct, frozen=True):
    """The process that serves now.

    `digest` is that of the configuration in force, as its description gives it: None without one, and no
    configuration's digest where the description is somebody else's.
    """

    pid: int
    version: str
    digest: str | None


class ServerState(Struct, frozen=True):
    """One listener's server, as HAProxy's health check sees it.

    `status` and `check` are HAProxy's own words ("DOWN", "Layer4 connection problem: Connection refused");
    the sessions are counted since the last reload, and so are the connections that were `rejected`: beyond a
    limit (see haproxy_config), or for what they sent. `connections` are the listener's now.
    """

    bind: Endpoint
    load_balancer: ObjectRef
    up: bool
    status: str
    check: str
    sessions: int
    sessions_total: int
    connections: int = 0
    rejected: int = 0


def worker(path: PurePath, timeout: float) -> Worker | Unreachable:
    """The worker behind the socket at `path`; `timeout` in seconds."""
    answer = ask(path, "show info", timeout)
    if isinstance(answer, Unreachable):
        return answer
    fields = dict(line.split(": ", 1) for line in answer.splitlines() if ": " in line)
    if "Pid" not in fields:
        return Unreachable(str(path), Silence.CUT)
    return Worker(
        pid=int(fields["Pid"]),
        version=fields.get("Version", ""),
        digest=fields.get("description", "").removeprefix("nodeagent-") or None,
    )


def servers(path: PurePath, timeout: float) -> tuple[ServerState, ...] | Unreachable:
    """The servers of all listeners, sorted by address and port; `timeout` in seconds."""
    answer = ask(path, f"show stat -1 {_FRONTENDS_AND_SERVERS} -1", timeout)
    if isinstance(answer, Unreachable):
        return answer
    frontends: dict[str, dict[str, str]] = {}
    found = []
    for row in csv.DictReader(answer.removeprefix("# ").splitlines()):
        if row["svname"] == _FRONTEND:
            frontends[row["pxname"]] = row
        elif (state := _server(row, frontends.get(row["pxname"], {}))) is not None:
            found.append(state)
    return tuple(sorted(found, key=lambda state: state.bind.sort_key()))


def _server(row: dict[str, str], frontend: dict[str, str]) -> ServerState | None:
    named = parse_proxy_name(row["pxname"])
    if named is None or row["svname"] != SERVER_NAME:
        return None
    load_balancer, bind = named
    words = (row.get("check_desc") or row.get("check_status", ""), row.get("last_chk", ""))
    return ServerState(
        bind=bind,
        load_balancer=load_balancer,
        # "UP 1/3" is a server on its way down that still serves.
        up=row["status"].startswith("UP"),
        status=row["status"],
        check=": ".join(word for word in words if word),
        sessions=int(row["scur"] or 0),
        sessions_total=int(row["stot"] or 0),
        connections=int(frontend.get("scur") or 0),
        # dcon: by "tcp-request connection" rules; dreq: by "tcp-request content" rules.
        rejected=int(frontend.get("dcon") or 0) + int(frontend.get("dreq") or 0),
    )
