"""The defaults are those that the documentation gives."""

from pathlib import Path

import msgspec
import pytest

from nodeagent.config.options import Config
from nodeagent.config.reading import parse_config, read_config

_PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
DOCUMENTED = _PAGE.read_text("utf-8").split("```yaml\n", 1)[1].split("```", 1)[0]
"""The whole configuration as the page shows it, key by key, with the defaults."""


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", "# all commented out\n", "---\n", "~\n", "{}\n", "\ufeff"),
        *(f"{field.encode_name}:\n  # nothing\n" for field in msgspec.structs.fields(Config)),
        *("hosts: {allow: }", "dnat: {podCIDRs: ~}", "relay: {service: null, ipv4: }"),
    ],
)
def test_a_file_a_section_or_an_option_that_says_nothing_means_the_defaults(text: str) -> None:
    """Empty, a comment, null and an empty mapping are the same."""
    assert parse_config(text, "nodeagent.yaml") == Config()


def test_a_full_file_is_read(tmp_path: Path) -> None:
    """Each kind of value arrives as what it is."""
    file = tmp_path / "nodeagent.yaml"
    file.write_text(
        """\
loadBalancers:
  services:
    - {namespace: ingress-nginx, name: ingress-nginx-controller, proxyProtocol: v2}
    - {namespace: kube-system, name: traefik}
  ignore: [{namespace: default, name: postgres}]
relay: {launch: true, interface: relay0, ipv4: 10.9.0.0/28, runDir: /tmp/run}
dnat: {backend: none, podCIDRs: [10.244.1.0/24, "fd00:10:244::/64"]}
hosts: {verify: allow, allow: [corp.example.com], exclude: [db.corp.example.com], file: /host/etc/hosts}
""",
        encoding="utf-8",
    )
    config = read_config(file)
    listed = [(entry.path, entry.proxy_protocol) for entry in config.load_balancers.services]
    assert listed == [("ingress-nginx/ingress-nginx-controller", "v2"), ("kube-system/traefik", "v1")]
    assert [entry.path for entry in config.load_balancers.ignore] == ["default/postgres"]
    assert (config.relay.launch, config.relay.interface) == (True, "relay0")
    assert (str(config.relay.ipv4), str(config.relay.run_dir)) == ("10.9.0.0/28", "/tmp/run")  # noqa: S108
    assert [str(text.network) for text in config.dnat.pod_cidrs] == ["10.244.1.0/24", "fd00:10:244::/64"]
    assert (config.hosts.allow, config.hosts.exclude) == (("corp.example.com",), ("db.corp.example.com",))
    assert str(config.hosts.file) == "/host/etc/hosts"
