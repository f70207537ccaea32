"""Other ingress controllers for the testbed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testbed.addresses import POD1
from tests.testbed.world import World

PORTS = {80: 9080, 443: 9443, 8443: 9843}
"""Where another controller listens in its pod, by the Service's port."""

# The first twelve bytes of a version 2 header, which HAProxy sees here as plain data.
_V2 = "0D0A0D0A000D0A515549540A"


@contextmanager
def controller_without_proxy(world: World, directory: Path) -> Iterator[None]:
    """An nginx that reads no PROXY header, in the first pod."""
    listen = "".join(
        f"listen {inner}{'' if port == 80 else ' ssl'};" for port, inner in sorted(PORTS.items())
    )
    file = directory / "plain-nginx.conf"
    temporary = "".join(
        f"{kind}_temp_path {directory}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file.write_text(
        f"daemon off; user root; pid {directory}/plain-nginx.pid; error_log stderr;\n"
        "events { worker_connections 256; }\n"
        f"http {{ access_log off; {temporary}\n"
        f"ssl_certificate {world.certificates.server}; ssl_certificate_key {world.certificates.server_key};\n"
        f"server {{ {listen} return 200; }} }}\n",
        encoding="ascii",
    )
    with _in_first_pod(world, "nginx", "-c", file, "-e", "stderr"):
        yield


@contextmanager
def controller_of_version_1(world: World, directory: Path) -> Iterator[None]:
    """The ingress controller behind an HAProxy that lets no PROXY header of version 2 through."""
    lines = ["defaults", " mode tcp", " timeout connect 3s", " timeout client 20s", " timeout server 20s"]
    for port, inner in sorted(PORTS.items()):
        lines += [
            f"listen port{port}",
            f" bind {POD1}:{inner}",
            " tcp-request inspect-delay 3s",
            f" tcp-request content reject if {{ req.payload(0,12),hex -m str {_V2} }}",
            " tcp-request content accept if { req.len ge 12 }",
            f" server nginx {POD1}:{port}",
        ]
    file = directory / "version-1.cfg"
    file.write_text("\n".join(lines) + "\n", encoding="ascii")
    with _in_first_pod(world, "haproxy", "-db", "-f", file):
        yield


@contextmanager
def _in_first_pod(world: World, *command: str | Path) -> Iterator[None]:
    process = world.pod1.popen([*command], log=f"other-{command[0]}")
    try:
        for inner in PORTS.values():
            world.pod1.await_port(inner, process)
        yield
    finally:
        process.stop()
