"""The DNS server of the world: dnsmasq, answering from a file that tests may change."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.testbed.addresses import DNS_PORT
from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.testbed.addresses import Address
    from tests.testbed.namespaces import Host


class DnsServer:
    """dnsmasq on one host; it asks nobody else, and knows nothing but its records.

    Args:
        host: Where it runs.
        address: Where it listens.
        directory: For its file of records; made here.
        records: The addresses that each name has.
    """

    def __init__(
        self, host: Host, address: Address, directory: Path, records: Mapping[str, Sequence[Address]]
    ) -> None:
        directory.mkdir()
        self.host = host
        self.address = address
        self._file = directory / "records"
        self._write(records)
        self.process = host.popen(
            [
                *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--pid-file="),
                *("--no-resolv", "--no-hosts", "--local=/#/", f"--addn-hosts={self._file}"),
                *("--bind-interfaces", f"--listen-address={address}", "--except-interface=lo"),
                *("--log-facility=-", "--log-queries"),
            ]
        )

    def await_ready(self) -> None:
        """Wait until it listens."""
        self.host.await_port(DNS_PORT, self.process, protocol="udp")

    def set_records(self, records: Mapping[str, Sequence[Address]]) -> None:
        """Answer from now on with these records and no others; returns when they are in force."""
        before = self._times_read()
        self._write(records)
        self.process.signal(signal.SIGHUP)
        wait_until(lambda: self._times_read() > before, "dnsmasq reading its records again")

    def _write(self, records: Mapping[str, Sequence[Address]]) -> None:
        lines = [f"{address} {name}\n" for name, addresses in records.items() for address in addresses]
        self._file.write_text("".join(lines), encoding="ascii")

    def _times_read(self) -> int:
        return self.process.log.read_text(encoding="utf-8").count(f"read {self._file}")
