"""The DNS server of the world: dnsmasq, answering from a file that tests may change."""

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.testbed.addresses import DNS_PORT, Address
from tests.testbed.namespaces import Host
from tests.testbed.waiting import wait_until


class DnsServer:
    """dnsmasq on one host; it asks no other server, and knows nothing but its records.

    Args:
        host: Where it runs.
        addresses: Where it listens.
        directory: For its file of records; made here.
        records: The addresses that each name has.
    """

    def __init__(
        self,
        host: Host,
        addresses: Sequence[Address],
        directory: Path,
        records: Mapping[str, Sequence[Address]],
    ) -> None:
        directory.mkdir()
        self.host = host
        self.addresses = tuple(addresses)
        self._file = directory / "records"
        self._write(records)
        self.process = host.popen(
            [
                *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--pid-file="),
                *("--no-resolv", "--no-hosts", "--local=/#/", f"--addn-hosts={self._file}"),
                *("--bind-interfaces", *(f"--listen-address={address}" for address in addresses)),
                "--except-interface=lo",
                *("--log-facility=-", "--log-queries"),
            ]
        )

    def await_ready(self) -> None:
        """Wait until it listens."""
        self.host.await_port(DNS_PORT, self.process, protocol="udp")

    def set_records(self, records: Mapping[str, Sequence[Address]]) -> None:
        """Answer from now on with these records and no others; returns when they are active."""
        before = self._times_read()
        self._write(records)
        self.process.signal(signal.SIGHUP)
        wait_until(lambda: self._times_read() > before, "dnsmasq reading its records again")

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Answer no one as long as this lasts."""
        self.process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.signal(signal.SIGCONT)

    def times_asked(self, name: str) -> int:
        """Count the questions for a name, A and AAAA alike."""
        said = self.process.log.read_text(encoding="utf-8")
        return len(re.findall(rf"query\[AA?A?A?\] {re.escape(name)} ", said))

    def _write(self, records: Mapping[str, Sequence[Address]]) -> None:
        lines = [f"{address} {name}\n" for name, addresses in records.items() for address in addresses]
        self._file.write_text("".join(lines), encoding="ascii")

    def _times_read(self) -> int:
        return self.process.log.read_text(encoding="utf-8").count(f"read {self._file}")
