"""A host's own /etc, so that no test ever touches the machine's."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.testbed.addresses import Address

# What the world's programs read there: users and groups, the resolver's and linker's settings, names of
# protocols, OpenSSL's defaults.
_COPIED = (
    "ethertypes",
    "gai.conf",
    "group",
    "host.conf",
    "ld.so.cache",
    "ld.so.conf",
    "localtime",
    "nsswitch.conf",
    "passwd",
    "protocols",
    "rpc",
    "services",
    "ssl/openssl.cnf",
)
MOUNTED = ("alternatives", "iproute2", "ld.so.conf.d")
"""These are too many files to be copied: each host mounts the machine's own directories, read-only."""


def fill(etc: Path, name: str, addresses: Sequence[Address], nameserver: Address, ca: Path) -> None:
    """Make a directory that becomes a host's /etc.

    The host's name and addresses are in its hosts file. It trusts no certificate but `ca`.
    """
    (etc / "ssl" / "certs").mkdir(parents=True)
    for directory in MOUNTED:
        if Path("/etc", directory).is_dir():
            (etc / directory).mkdir()
    for relative in _COPIED:
        source = Path("/etc") / relative
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, etc / relative, symlinks=True)
        elif source.exists():
            shutil.copy2(source, etc / relative, follow_symlinks=False)
    shutil.copyfile(ca, etc / "ssl" / "certs" / "ca-certificates.crt")
    (etc / "hostname").write_text(f"{name}\n", encoding="ascii")
    (etc / "resolv.conf").write_text(f"nameserver {nameserver}\n", encoding="ascii")
    hosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
    hosts += "".join(f"{address}\t{name}\n" for address in addresses)
    (etc / "hosts").write_text(hosts, encoding="ascii")
