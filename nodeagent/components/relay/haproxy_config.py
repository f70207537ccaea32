"""The relay's haproxy.cfg: rendered from listeners, and read back into the same listeners. Pure.

It begins with haproxy_base.cfg. The section numbers are those of HAProxy's configuration manual, version 2.6.
Why these limits:

* `maxconn`: a connection takes about 33 kB with both buffers in use (4.2), so 8,000 take 264 MB at worst. The
  processes that reloads left have at most as many together (activation.make_room).
* `tune.sndbuf` and `tune.rcvbuf`: the kernel's buffers of a socket count as the container's memory (cgroup
  v2), and the kernel grows them while a connection is fast: one that then stalled had 21 MB.
* All clients but the node itself are counted: per client, per listener and in total. A client may have
  an eighth of what is free: seven that take all they can leave 44 %. An eighth of `maxconn` is the node's,
  whose connections a listener's `maxconn` would put into the same queue.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from nodeagent.config.options import RelayOptions
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint, IPAddress, sort_key
from nodeagent.model.desired import HEALTH, Listener
from nodeagent.model.objects import ObjectRef, ProxyVersion

SERVER_NAME = "service"
"""The name of the checked server in each `listen` section, as statistics show it."""

_GLOBAL_AND_DEFAULTS = Path(__file__).with_name("haproxy_base.cfg").read_text("ascii")
_HEALTH = f"""\
frontend health
    mode http
    bind {HEALTH}
    timeout client 10s
    timeout http-request 5s
    monitor-uri /healthz

"""
# A process that holds a few connections takes 4 MB with 20 listeners, 13 MB with 400 (HAProxy 2.6; measured).
_OLD_PROCESSES_MIB = 384
_LEAST_RELOADS = 10
_MOST_THREADS = 4
_PROCESSORS_PER_THREAD = 4

# Every node checks every listener, so checks are rare while all is well. After the first failure, and while
# down, they run each second if there are few servers. A check sends the PROXY header as a connection does
# (5.2, check-send-proxy), or the controller would log errors. Anyone who can write an EndpointSlice chooses
# where the checks go: a namespace has a share of the checks only.
_CHECKS_PER_SECOND = 100
_CHECKS_OF_A_NAMESPACE = 10
_LEAST_INTERVAL = 10
_SERVER_OPTIONS: Mapping[ProxyVersion | None, str] = {
    None: "check",
    "v1": "send-proxy check check-send-proxy",
    "v2": "send-proxy-v2 check check-send-proxy",
}
_OPTIONS_MEAN = {options: version for version, options in _SERVER_OPTIONS.items()}
# Checks only report: HAProxy rejects connections to a server that is down, so these go to a second one, the
# same address, unchecked.
_UNCHECKED = "unchecked"
# The agent's own connections, by which it sees where new ones arrive (steering.py), come from loopback's
# address. HAProxy rejects them at the end of the delay, or of the connection: no controller logs them.
STEERING_SOURCES: Mapping[int, str] = {4: "127.0.0.1", 6: "::1"}
_STEERING = f"""\
    tcp-request inspect-delay 5s
    tcp-request content reject if {{ src {" ".join(STEERING_SOURCES.values())} }} WAIT_END
"""
# A plain listener adds no PROXY header, so one that a pod sends would look like the node's, whom controllers
# trust. Nothing is forwarded until the first bytes show that they are not a header: 0x50 is "P", and 0x0D
# begins version 2's signature (PROXY protocol, 2.1 and 2.2). A client that sends too little is finally
# rejected. The node's own programs can reach the controller without the relay: they are exempt.
_FORGERY = """\
    tcp-request content accept if node
    acl v1 req.payload(0,1) -m bin 50
    acl v2 req.payload(0,1) -m bin 0D
    tcp-request content accept if { req.payload(0,1) -m found } !v1 !v2
    tcp-request content accept if v1 { req.payload(0,5) -m found } !{ req.payload(0,5) -m bin 50524F5859 }
    tcp-request content accept if v2 { req.payload(0,12) -m found } \
!{ req.payload(0,12) -m bin 0D0A0D0A000D0A515549540A }
    tcp-request content reject
"""

# A namespace and a Service's name never have an underscore (RFC 1035 labels), so it separates the proxy's
# name. HAProxy allows letters, digits, and - _ . : in it (4, "All proxy names").
_LABEL = re.compile(r"[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?")
_DESCRIPTION = re.compile(r"^    description nodeagent-[0-9a-f]{64}\n", re.MULTILINE)
_SERVER = re.compile(rf"^    server {SERVER_NAME} (\S+) (.+?) inter ", re.MULTILINE)
_NODE = re.compile(r" set-src ipv[46]\(([^)\s]+)\) ")


def with_threads(options: RelayOptions, processors: int) -> RelayOptions:
    """Return the options with a number of threads for that of the node's processors."""
    usual = max(1, min(_MOST_THREADS, processors // _PROCESSORS_PER_THREAD))
    return replace(options, threads=options.threads or usual)


def render(listeners: Iterable[Listener], options: RelayOptions | None = None) -> str:
    """Return the whole haproxy.cfg for these listeners. Raises ApplyError for one that can't be written.

    A connection that the node makes directly to the relay address has that address as its source, so
    `tcp-request connection set-src` (4.2) names the node's own instead. The `description` has the digest of
    all the rest: `show info` says which configuration is active.
    """
    ordered = sorted(set(listeners), key=lambda listener: listener.bind.sort_key())
    for earlier, later in pairwise(ordered):
        if earlier.bind == later.bind:
            raise _refusal(later, f"{earlier.load_balancer} already listens there")
    options = options or RelayOptions()
    head = _GLOBAL_AND_DEFAULTS.format(
        connections=options.max_connections,
        threads=options.threads or 1,
        health="" if options.launch else _HEALTH,
        # How many reloads a process may outlive, so that all that do take 384 MiB of memory at most.
        reloads=max(_LEAST_RELOADS, _OLD_PROCESSES_MIB // (4 + len(ordered) // 40)),
    )
    admission = _admission(ordered, options)
    shares = Counter(listener.load_balancer.namespace for listener in ordered)
    sections = [head]
    for listener in ordered:
        of_namespace = -(-shares[listener.load_balancer.namespace] // _CHECKS_OF_A_NAMESPACE)
        pace = max(1, -(-len(ordered) // _CHECKS_PER_SECOND), of_namespace)
        interval = f"inter {max(_LEAST_INTERVAL, pace)}s fastinter {pace}s downinter {pace}s fall 3 rise 1"
        sections.append(_section(listener, admission, interval))
    text = "\n".join(sections)
    return text.replace("global\n", f"global\n    description nodeagent-{digest(text)}\n", 1)


def parse(text: str) -> tuple[Listener, ...]:
    """Return the listeners of what an edition of `render` made, in order. Raises ValueError."""
    sections = re.split(r"^(?=listen )", text, flags=re.MULTILINE)[1:]
    return tuple(sorted(map(_listener, sections), key=lambda listener: listener.bind.sort_key()))


def digest(text: str) -> str:
    """Return the SHA-256, in hexadecimal, of a configuration without its own `description` line."""
    return hashlib.sha256(_DESCRIPTION.sub("", text).encode()).hexdigest()


def parse_proxy_name(name: str) -> tuple[ObjectRef, Endpoint] | None:
    """Return the Service and the endpoint from a section's name; None if it is not nodeagent's."""
    with suppress(ValueError):
        namespace, service, address, port = name.split("_")
        return ObjectRef("Service", namespace, service), Endpoint(ip_address(address), int(port))
    return None


def _admission(listeners: Iterable[Listener], options: RelayOptions) -> str:
    own: set[IPAddress] = {
        listener.node_address for listener in listeners if listener.node_address is not None
    }
    nodes = (options.ipv4, options.ipv6, *STEERING_SOURCES.values(), *sorted(own, key=sort_key))
    exempt = " ".join(map(str, nodes))
    others = options.max_connections - options.max_connections // 8  # an eighth is reserved for the node
    count = "    tcp-request connection"
    return (
        f"    acl node src {exempt}\n"
        f"{count} track-sc0 src table clients if !node\n"
        f"{count} track-sc1 int(0) table everyone if !node\n"
        f"{count} set-var(sess.weight) sc0_conn_cur,mul(8) if !node\n"
        f"{count} reject if !node {{ sc1_conn_cur,add(sess.weight) gt {others} }}"
        f" || !node {{ fe_conn,add(sess.weight) gt {options.max_connections_per_listener} }}\n"
    )


def _section(listener: Listener, admission: str, intervals: str) -> str:
    address, node = listener.bind.address, listener.node_address
    ref = listener.load_balancer
    if ref.kind != "Service" or not _LABEL.fullmatch(ref.namespace) or not _LABEL.fullmatch(ref.name):
        raise _refusal(listener, "the relay serves Services whose namespace and name are DNS labels")
    for endpoint in (listener.bind, listener.server):
        if not 0 < endpoint.port < 65536:
            raise _refusal(listener, f"{endpoint.port} is not a TCP port")
    for ip in (address, listener.server.address, node):
        if isinstance(ip, IPv6Address) and ip.scope_id is not None:
            raise _refusal(listener, f"{ip} is bound to an interface")
    name = f"{ref.namespace}_{ref.name}_{address}_{listener.bind.port}"
    lines = [f"listen {name}", f"    bind {listener.bind}", admission.rstrip("\n")]
    if node is not None:
        if node.version != address.version:
            raise _refusal(listener, f"the node's address {node} is of the other family")
        lines.append(f"    tcp-request connection set-src ipv{node.version}({node}) if {{ src {address} }}")
    lines.append(_STEERING.rstrip("\n"))
    if listener.proxy is None:
        lines.append(_FORGERY.rstrip("\n"))
    options = _SERVER_OPTIONS[listener.proxy]
    lines.append(f"    server {SERVER_NAME} {listener.server} {options} {intervals}")
    lines.append(f"    server {_UNCHECKED} {listener.server} {options.partition('check')[0]}backup")
    return "\n".join(lines) + "\n"


def _listener(section: str) -> Listener:
    title = section.partition("\n")[0]
    named = parse_proxy_name(title.removeprefix("listen "))
    server, node = _SERVER.search(section), _NODE.search(section)
    problem = ValueError(f"section {title!r} is not as nodeagent writes it")
    if named is None or server is None or server[2] not in _OPTIONS_MEAN:
        raise problem
    address, _, port = server[1].rpartition(":")
    try:
        listener = Listener(
            bind=named[1],
            server=Endpoint(ip_address(address.strip("[]")), int(port)),
            proxy=_OPTIONS_MEAN[server[2]],
            load_balancer=named[0],
            node_address=ip_address(node[1]) if node else None,
        )
        _section(listener, "", "")
    except (ValueError, ApplyError) as error:
        raise problem from error
    return listener


def _refusal(listener: Listener, why: str) -> ApplyError:
    return ApplyError(
        f"the relay can't listen on {listener.bind} for {listener.load_balancer}: {why}. "
        "HAProxy's configuration was left as it was."
    )
