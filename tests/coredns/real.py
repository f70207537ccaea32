"""A real CoreDNS, where `COREDNS=/path/to/coredns` says that there is one: started, and asked."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype

from tests.apiserver.listener import free_ports
from tests.coredns.resolving import NO_RECORDS, PASSED_ON, model_answer
from tests.testbed.waiting import wait_until

COREDNS = os.environ.get("COREDNS", "")
_SECONDS = 20.0


@contextmanager
def serving(corefile: str, folder: Path, port: int, name: str) -> Iterator[None]:
    """Run CoreDNS with a Corefile; begins once it answers for `name` at `port`, whatever it says."""
    file = folder / "Corefile"
    file.write_text(corefile)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([COREDNS, "-conf", str(file)], stdout=log, stderr=log)
    try:

        def answers() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            try:
                return bool(ask(port, name, "A"))
            except (OSError, dns.exception.Timeout):
                return False  # it does not listen yet

        wait_until(answers, "CoreDNS to answer", seconds=_SECONDS)
        yield
    finally:
        process.terminate()
        process.wait(10)


def ask(port: int, name: str, kind: str) -> str:
    """What CoreDNS answers, in the words of resolving.py."""
    query = dns.message.make_query(f"{name}.", dns.rdatatype.from_text(kind))
    answer = dns.query.udp(query, "127.0.0.1", timeout=2, port=port)
    if answer.rcode() == dns.rcode.NXDOMAIN:
        return PASSED_ON
    assert answer.rcode() == dns.rcode.NOERROR
    records = [record.to_text() for found in answer.answer for record in found]
    if not records:
        assert [found.rdtype for found in answer.authority] == [dns.rdatatype.SOA]
        return NO_RECORDS
    return " ".join(str(ip_address(record)) for record in records)


def answer_of(corefile: str, name: str, folder: Path) -> str:
    """What a CoreDNS answers to pods with this Corefile of one server block, for `.:53`.

    A real one, if there is one, listens on another port of 127.0.0.1 and leaves its files in the folder.
    """
    if not COREDNS:
        return model_answer(corefile, name)
    (port,) = free_ports(1)
    assert ".:53 {" in corefile
    own = corefile.replace(".:53 {", f".:{port} {{\n    bind 127.0.0.1", 1)
    with serving(own, folder, port, name):
        return ask(port, name, "A")
