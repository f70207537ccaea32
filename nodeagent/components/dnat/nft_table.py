"""The table `inet nodeagent`: its structure as text, and its state as nft lists it. Pure.

The structure is fixed, two rules per family and hook, and only the elements of maps and sets change: a packet
costs two lookups however many load balancers there are. Whatever else differs, the whole table is replaced.

The listing's format is libnftables-json(5). Versions of nft print the same table differently, so nothing of
it is compared with a text of nodeagent's. nft echoes each transaction as the kernel took it, in the format of
its listings: a digest of that, in a comment of the table, is what a listing's digest is compared with.
"""

import hashlib
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network

import msgspec
from msgspec import Raw, Struct

from nodeagent.components.dnat.state import DnatState, owner_of, with_elements
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import FAMILIES, Endpoint, IPNetwork
from nodeagent.model.desired import LOOPBACK, NO_RULES, PROBED_USERS, DnatRules, Redirect
from nodeagent.typed_values import from_json

TABLE = "nodeagent"

CHAINS = {
    # Before kube-proxy: NF_IP_PRI_NAT_DST, nft's `dstnat`, is -100, and the first chain that sets up a
    # connection's translation wins (nf_nat_inet_fn() runs the chains only for a connection without one).
    "output": ("nat", "output", -105),
    "prerouting": ("nat", "prerouting", -105),
    # NF_IP_PRI_RAW: a packet dropped here costs no entry of connection tracking, and a packet that will be
    # redirected to the relay still has the load balancer's address.
    "guard": ("filter", "prerouting", -300),
    # NF_IP_PRI_FILTER, after every translation.
    "guard_input": ("filter", "input", 0),
    "users": ("filter", "output", 0),
}
"""Type, hook and priority of each; all have the policy `accept`."""

DIGEST = "digest"
"""A chain without a hook, so that no packet sees it. The comment of its only rule is `mark`."""

RANGES = tuple(NO_RULES.ranges)
"""Each is an interval set for each family, pods4 and pods6 for instance; the map is lb4 or lb6."""


def structure(desired: DnatRules) -> str:
    """Return the definition of the whole table without elements: it depends on the options alone.

    `guard` sees packets before every translation, `guard_input` after them: a NodePort, or the address of a
    Service whose EndpointSlice names a relay address, would lead there as well, and HAProxy to itself.
    `users` sees the node's own connections after their translation.

    The last rules of `output` and `prerouting` keep what is sent to the relay from all later chains. A pod's
    hostPort (the CNI plugin portmap) and kube-proxy's NodePorts take their port of every local address:
    anyone who can create a pod or a Service could answer in the relay's place. A translation to the packet's
    own address counts as one, so no later chain makes another.

    The sets of ranges have `typeof`: nft 1.0.6 crashes when it lists tables while any table of the namespace
    has a set of a single `type` that nft 1.1.3 made (observed).
    """
    lines: list[str] = []
    rules: dict[str, list[tuple[str, str]]] = {chain: [] for chain in CHAINS}
    kept: list[tuple[str, str]] = []
    translated: list[tuple[str, str]] = []
    for family in FAMILIES:
        ip, endpoint = "ip" if family == 4 else "ip6", f"ipv{family}_addr . inet_service"
        lines += [f"map lb{family} {{", f"\ttype {endpoint} : {endpoint}", "}"]
        for name in RANGES:
            lines += [f"set {name}{family} {{", f"\ttypeof {ip} saddr", "\tflags interval", "}"]
        dnat = f"meta l4proto tcp dnat {ip} to {ip} daddr . tcp dport map @lb{family}"
        rules["output"].append((dnat, "load balancer to relay"))
        for arriving in [f'iifname "{name}" ' for name in desired.options.interfaces] or [""]:
            of_pods = f"{arriving}{ip} saddr @pods{family} {dnat}"
            rules["prerouting"].append((of_pods, "load balancer to relay"))
        to_guarded = f"{ip} daddr @guarded{family}"
        already = "to the relay already: to itself, so no later chain translates it"
        kept.append((f"{to_guarded} dnat {ip} to {ip} daddr", already))
        guard = f'iif != "lo" {to_guarded} {ip} saddr != @admitted{family} drop'
        rules["guard"].append((guard, "this node and its pods only"))
        rules["guard_input"].append((guard, "this node and its pods only"))
        known = " ".join(f"ct original {ip} daddr != @{name}{family}" for name in ("guarded", "balancers"))
        led = "led to the relay by another translation"
        translated.append((f"ct state new {to_guarded} {known} drop", led))
        if desired.users:
            limit = f"{to_guarded} meta skuid != 0 ct state new ct count over {desired.users} drop"
            rules["users"].append((limit, "connections of local users except root"))
            for port in desired.probed:
                probed = f"{ip} daddr {LOOPBACK[family]} tcp dport {port} meta skuid != 0 ct state new"
                keep_out = f"{probed} ct count over {PROBED_USERS} drop"
                rules["users"].append((keep_out, "a place for the kubelet's probes"))
    rules["output"] += kept
    rules["prerouting"] += kept
    rules["guard_input"] += translated
    for chain, (kind, hook, priority) in CHAINS.items():
        # The priority as a number: the name `dstnat` means another one in the output hook's text of old nft.
        head = f"\ttype {kind} hook {hook} priority {priority}; policy accept;"
        texts = (f'\t{rule} comment "{comment}"' for rule, comment in rules[chain])
        lines += [f"chain {chain} {{", head, *texts, "}"]
    return "\n\t".join([f"table inet {TABLE} {{", *lines, f"chain {DIGEST} {{", "}"]) + "\n}\n"


def mark(desired: DnatRules, listed: str) -> str:
    """Return the comment of a table made for `desired`; `listed` is the digest of its structure as listed."""
    rendered = hashlib.sha256(structure(desired).encode("ascii")).hexdigest()[:8]
    return f"rendered {rendered}, listed {listed}"


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
        if self.mark == mark(desired, self.listed):
            return self
        altered = (
            "a chain, rule, map or set was added, altered or removed, or another version of nft made it"
            if not self.mark.endswith(self.listed)
            else "it was made with other options, or by another version of nodeagent"
        )
        return replace(self, damage=(*self.damage, f"table inet {TABLE}: {altered}"))


def parsed(text: bytes) -> tuple[_Items, str]:
    """Return each object of a listing or an echo, after its kind, and their digest. Raises ApplyError."""
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
    """Return what the output of `nft -j list table inet nodeagent` shows. Raises ApplyError."""
    items, listed = parsed(listing)
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
    rules = with_elements(NO_RULES, redirects, ranges)
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
