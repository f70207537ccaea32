"""Other ingress controllers and certificates for the testbed."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testbed.addresses import NAMES, POD1
from tests.testbed.certificates import Certificates
from tests.testbed.errors import WorldError
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

PORTS = {80: 9080, 443: 9443, 8443: 9843}
"""Where another controller listens in its pod, by the Service's port."""

# The first twelve bytes of a version 2 header, which HAProxy sees here as plain data.
_V2 = "0D0A0D0A000D0A515549540A"
_AUTHORITY = """\
[ca]
default_ca = testbed
[testbed]
database = {directory}/index.txt
new_certs_dir = {directory}
default_md = sha256
policy = any
rand_serial = yes
x509_extensions = server
[any]
commonName = supplied
[server]
basicConstraints = critical,CA:FALSE
subjectAltName = {names}
"""


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


@contextmanager
def served_certificate(world: World, other: Certificates) -> Iterator[None]:
    """The ingress controllers show another certificate as long as this lasts."""
    mine = world.certificates
    saved = [(path, path.read_bytes()) for path in (mine.server, mine.server_key)]
    try:
        shutil.copyfile(other.server, mine.server)
        shutil.copyfile(other.server_key, mine.server_key)
        _reload(world)
        yield
    finally:
        for path, content in saved:
            path.write_bytes(content)
        _reload(world)


def expired_certificate(world: World, directory: Path) -> Certificates:
    """A certificate of the world's own authority for its names, whose life ended in 2020."""
    made = type(world.certificates)(
        world.certificates.ca, directory / "expired.crt", directory / "expired.key"
    )
    (directory / "index.txt").touch()
    authority = directory / "authority.cnf"
    names = ",".join(f"DNS:{name}" for name in NAMES)
    authority.write_text(_AUTHORITY.format(directory=directory, names=names), encoding="ascii")
    request = directory / "expired.csr"
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl("req", "-new", *key, "-subj", f"/CN={NAMES[0]}", "-keyout", made.server_key, "-out", request)
    _openssl(
        *("ca", "-batch", "-notext", "-config", authority, "-in", request, "-out", made.server),
        *("-cert", made.ca, "-keyfile", made.ca.with_name("ca.key")),
        *("-startdate", "20200101000000Z", "-enddate", "20200102000000Z"),
    )
    return made


def _reload(world: World) -> None:
    """Let nginx read its certificate again, and wait until the workers with the old one have ended."""
    before = [_ended_workers(controller.error_log) for controller in world.ingress]
    for controller in world.ingress:
        controller.process.signal(signal.SIGHUP)

    def renewed() -> bool:
        return all(
            _ended_workers(controller.error_log) >= count + 2
            for controller, count in zip(world.ingress, before, strict=True)
        )

    wait_until(renewed, "nginx replacing its workers")


def _ended_workers(log: Path) -> int:
    return log.read_text(encoding="utf-8", errors="replace").count(" exited with code 0")


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WorldError(f"openssl: {done.stderr}")
