"""Names, hosts and annotations from which random clusters are made: small pools, so that they collide."""

from datetime import UTC, datetime

from nodeagent.model.objects import EXCLUDE, PROXY_PROTOCOL
from nodeagent.plan.identity.providers import PROVIDERS

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)

NAMES = ("blue", "green", "red", "white")
ABSURD_HOSTS = (
    "",
    ".",
    "..",
    "*",
    "*.",
    "*.*.example.com",
    "a..example.com",
    "-a.example.com",
    "a-.example.com",
    "_dmarc.example.com",
    "two words.example.com",
    "line\nbreak.example.com",
    "nul\0.example.com",
    "tab\t.example.com",
    "escape\x1b[2J.example.com",
    "comment#.example.com",
    "\U0001f60a.example.com",
    "b\u00fccher.example.com",
    "\u212aelvin.example.com",
    "127.0.0.1",
    "1.2.3",
    "7",
    "a.example.7",
    "[::1]",
    "::1",
    "x" * 64 + ".example.com",
    "x." * 150 + "com",
)

ANNOTATIONS = (
    EXCLUDE,
    PROXY_PROTOCOL,
    *(switch.key.format(port=443) for provider in PROVIDERS for switch in provider.switches),
)
ANNOTATION_VALUES = (
    *("true", "false", "1", "0", "*", "v1", "v2", "none", "on", "off", "80,443", "443", "http,https", ""),
    *('{"proxy-protocol": "v2"}', '{"backends": [{"name": "http"}]}', "proxy_protocol_v2.enabled=true"),
)
