"""What is said of a bad configuration: file, line, key and what to write instead; all of it at once."""

from pathlib import Path

import pytest

from nodeagent.config.reading import parse_config, read_config
from nodeagent.errors import ConfigError

FILE = "nodeagent.yaml"
SECTIONS = "loadBalancers, relay, dnat, hosts, limits, coredns, telemetry"


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, FILE)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("loadBalancer: {}", "1: loadBalancer: unknown key; did you mean 'loadBalancers'?"),
        ("loadBalancers: {servces: []}", "1: loadBalancers.servces: unknown key; did you mean 'services'?"),
        ("xyzzy: 1", f"1: xyzzy: unknown key; known are {SECTIONS}"),
        ("1: 1", f"1: 1: unknown key; known are {SECTIONS}"),
        (
            "loadBalancers: {services: [{namespace: a, name: b, protcol: v1}]}",
            "1: loadBalancers.services[0].protcol: unknown key; did you mean 'proxyProtocol'?",
        ),
        ("dnat:\n  pods: true\n  backend: none\n  pods: false\n", "4: dnat.pods: given twice"),
        ("dnat: {pods: true}\nhosts: {}\ndnat: {pods: false}\n", "3: dnat: given twice"),
        *(
            (f"loadBalancers: {{services: [{entry}]}}", "1: loadBalancers.services[0]: 'name' is missing")
            for entry in ("{namespace: a}", "{namespace: a, name: }")
        ),
        *((text, "1: the file: must be a mapping of keys") for text in ("just text", "- a\n- b\n", "7")),
        # What YAML has and JSON has not is an error like any other.
        ("dnat: {", "2: not YAML: "),
        ("dnat:\n\tpods: true\n", "2: not YAML: "),
        ("a: 1\n---\nb: 2\n", "2: not YAML: "),
        ("dnat: *gone\n", "1: not YAML: "),
        ("\nrelay: !foo {launch: true}", "2: not YAML: tags (!) are not supported"),
        ('\nrelay: {maxConnections: !!int ""}', "2: not YAML: tags"),
        ("\nhosts: {allow: !!str [a]}", "2: not YAML: tags"),
        ("!!set {relay}", "1: not YAML: tags"),
        ("relay: {maxConnections: 1:2}", "1: relay.maxConnections: must be a whole number, not text"),
        (
            "relay: {maxConnections: " + "1:" * 100_000 + "1}",
            "1: relay.maxConnections: must be a whole number",
        ),
        ("relay: {maxConnections: 0x10}", "1: relay.maxConnections: must be a whole number, not text"),
        ("relay: {maxConnections: 1e999}", "1: relay.maxConnections: too large a number"),
        ("relay: {<<: {launch: true}}", "1: relay.<<: unknown key"),
        ("relay: " + "[" * 100_000, "1: not YAML: nested more than 100 deep"),
    ],
)
def test_an_error_has_the_line_the_key_and_what_to_write(text: str, complaint: str) -> None:
    (line,) = complaints(text)
    assert line.startswith(f"{FILE}:{complaint}")


_VALUES = [
    ("loadBalancers.nodePortRange", "32767-30000", "'32767-30000' is not a range of ports"),
    ("loadBalancers.detect", "'yes'", "must be true or false, not text"),
    ("loadBalancers.services", "ingress-nginx/controller", "must be a list"),
    ("relay.kind", "sidecar", "'sidecar' is not one of node, service"),
    ("relay.interface", "sixteen-letters0", "'sixteen-letters0' is not an interface name"),
    ("relay.interface", "a/b", "'a/b' is not an interface name"),
    ("relay.interface", "..", "'..' is not an interface name"),
    ("relay.interface", '"eth0\\n"', "'eth0\\n' is not an interface name"),
    ("relay.interface", "7", "must be text, not a whole number"),
    ("relay.ipv4", "169.254.66.7/24", "169.254.66.7/24 has host bits set: write 169.254.66.0/24"),
    ("relay.ipv4", "fd00::/64", "'fd00::/64' is not a range of addresses (example: 169.254.66.0/24)"),
    ("relay.ipv4", "10.0.0.0/33", "'10.0.0.0/33' is not a range of addresses"),
    ("relay.ipv6", "10.0.0.0/8", "'10.0.0.0/8' is not a range of addresses"),
    ("relay.ipv6", "'::/64'", "neither loopback nor multicast"),
    ("relay.ipv6", "'fd00::/63'", "must be a range of /64 to /125"),
    ("relay.ipv6", "'fd00::/126'", "must be a range of /64 to /125"),
    ("relay.ipv4", "169.0.0.0/15", "must be a range of /16 to /29"),
    ("relay.ipv4", "169.254.0.0/16", "must have no reserved address, nor 169.254.169.254"),
    ("relay.ipv4", "0.0.0.0/16", "must have no reserved address"),
    ("relay.ipv4", "255.255.255.0/24", "must have no reserved address"),
    ("relay.runDir", "run/nodeagent", "'run/nodeagent' is not an absolute path"),
    ("relay.runDir", '"/run/a\\nb"', "'/run/a\\nb' is not an absolute path"),
    ("relay.service", "hairpin-proxy", "must be a mapping of keys"),
    ("dnat.backend", "nft", "'nft' is not one of auto, nftables, iptables, none"),
    ("hosts.file", '"/etc/ho\\0sts"', "'/etc/ho\\x00sts' is not an absolute path"),
    ("hosts.dnsRecheckSeconds", "0", "must be a whole number >= 1"),
    ("hosts.dnsRecheckSeconds", "3601", "must be a whole number <= 3600"),
    ("telemetry.listen", "':9467'", "':9467' is not an address and port"),
    ("telemetry.listen", "localhost:9467", "'localhost:9467' is not an address and port"),
    ("telemetry.listen", "127.0.0.1:0", "the port must be a number from 1 to 65535"),
    ("telemetry.listen", "127.0.0.1:+80", "the port must be a number from 1 to 65535"),
    ("telemetry.listen", "'::1:9467'", "'::1:9467' is not an address and port"),
    ("telemetry.listen", "'[fe80::1%eth0]:9467'", "is not an address and port"),
    ("hosts.clusterDomain", "cluster.local.", "'cluster.local.' is not a DNS name in lower case"),
]
_ENTRIES = [
    ("hosts.allow", "Example.com", "'Example.com' is not a DNS name in lower case"),
    ("hosts.allow", "'*.example.com'", "'*.example.com': write it without the leading '*.'"),
    ("hosts.allow", ".example.com", "'.example.com': write it without the leading '.'"),
    ("hosts.allow", "-a.example.com", "is not a DNS name in lower case"),
    ("hosts.allow", '"a\\nb"', "is not a DNS name in lower case"),
    ("hosts.allow", "x" * 64, "is not a DNS name in lower case"),
    ("hosts.allow", "x." * 126 + "xx", "is not a DNS name in lower case"),
    ("hosts.allow", "~", "must be text, not nothing"),
    ("hosts.dnsServers", "dns.example.com", "'dns.example.com' is not a DNS server's address"),
    ("hosts.dnsServers", "192.0.2.53:0", "'192.0.2.53:0' is not a DNS server's address"),
    ("dnat.podCIDRs", "10.244.1.7/24", "10.244.1.7/24 has host bits set: write 10.244.1.0/24"),
    ("dnat.podCIDRs", "example.com", "'example.com' is not a range of addresses"),
    ("loadBalancers.refuse", "192.0.2.1-192.0.2.9", "'192.0.2.1-192.0.2.9' is not a range of addresses"),
    ("loadBalancers.addressRanges", "''", "'' is not a range of addresses"),
    ("loadBalancers.addressRanges", "' 192.0.2.0/24'", "' 192.0.2.0/24' is not a range of addresses"),
    ("loadBalancers.services", "ingress-nginx/controller", "must be a mapping of keys"),
    ("loadBalancers.services", "{namespace: a, name: b, proxyProtocol: v3}", "'v3' is not one of v1, v2"),
    ("loadBalancers.ignore", "{namespace: a, name: B}", "'B' is not a DNS name in lower case"),
]


@pytest.mark.parametrize(
    ("option", "text", "problem"),
    [*_VALUES, *((option, f"\n    - {entry}", problem) for option, entry, problem in _ENTRIES)],
)
def test_a_bad_value_or_entry_of_a_list_is_reported_with_its_key_and_line(
    option: str, text: str, problem: str
) -> None:
    section, _, key = option.partition(".")
    (complaint,) = complaints(f"{section}:\n  {key}: {text}\n")
    line = 3 if text.startswith("\n") else 2
    assert complaint.startswith(f"{FILE}:{line}: {option}")
    assert problem in complaint


def test_aliases_that_repeat_much_are_not_supported() -> None:
    """Nine lines of ten aliases each are a gigabyte; a few equal lists are nothing."""
    assert parse_config("hosts:\n  allow: &few [example.com]\n  exclude: *few\n", FILE).hosts.exclude
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{one}: &a{one} [{', '.join([f'*a{one - 1}'] * 10)}]" for one in range(1, 9)]
    text = "\n".join([*lines, "hosts: {file: *a8}"])
    assert complaints(text) == [
        f"{FILE}:3: not YAML: aliases (*) that repeat much, or themselves, are not supported"
    ]


@pytest.mark.parametrize("option", ["hosts.file", "relay.kind", "relay.ipv4", "dnat.podCIDRs", "hosts.x"])
@pytest.mark.parametrize("value", ["x" * 10_000, f"[{'x, ' * 3_000}]", f"[{'x' * 10_000}]"])
def test_an_error_shows_the_beginning_of_a_long_value(option: str, value: str) -> None:
    section, _, key = option.partition(".")
    for text in (f"{section}: {{{key}: {value}}}", f"{section}: {{{value.strip('[]')}: 1}}"):
        assert all(len(complaint) < 400 for complaint in complaints(text)), option


@pytest.mark.parametrize(
    "text", ["hosts: *{}", "hosts: !{} x", "hosts: &{} *x", "%{}\n---\na: 1", "hosts: {{file: ! {}", "'{}"]
)
def test_an_error_shows_the_beginning_of_what_the_parser_says(text: str) -> None:
    assert all(len(complaint) < 400 for complaint in complaints(text.format("x" * 100_000)))


def test_a_file_that_cant_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    """A directory if a ConfigMap is mounted one level too high."""
    with pytest.raises(ConfigError, match=r"gone\.yaml: can't be read: .*No such file"):
        read_config(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match=r"can't be read: .*Is a directory"):
        read_config(tmp_path)
    file = tmp_path / "latin1.yaml"
    file.write_bytes("# caf\u00e9\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin1\.yaml: can't be read: not a text in UTF-8"):
        read_config(file)
