"""Network namespaces, servers and clients for tests, all inside this process.

A namespace ends with its file descriptor, even after a kill; only the calling thread enters one.
"""

import os
import socket
import subprocess
import threading
from contextlib import AbstractContextManager
from typing import Self

from tests.isolation import NEWNET, enter, in_network, own_network, unshare

NOBODY = 65534


class Namespace:
    """A new network namespace with `lo` up."""

    def __init__(self) -> None:
        home = own_network()
        try:
            unshare(NEWNET)
            self.descriptor = own_network()
            _ip("link set lo up")
        finally:
            enter(home)
            os.close(home)
        # Veth pairs made here can use IPv6 at once, without a second or two of address detection.
        self.sysctl("net/ipv6/conf/default/accept_dad", "0")

    def close(self) -> None:
        """Let go of the namespace; the kernel removes it with the last socket in it."""
        os.close(self.descriptor)

    def inside(self) -> AbstractContextManager[None]:
        return in_network(self.descriptor)

    @property
    def path(self) -> str:
        """A path that `ip link set ... netns` takes."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def ip(self, *commands: str) -> None:
        """Run commands, each without the word `ip` before it."""
        with self.inside():
            _ip(*commands)

    def output(self, command: str) -> str:
        with self.inside():
            return subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout

    def nft(self, script: str) -> None:
        with self.inside():
            subprocess.run(["nft", "-f", "-"], input=script, text=True, check=True)

    def legacy(self, commands: str, *, family: int = 4) -> None:
        """Apply rules of legacy xtables, as iptables-restore --noflush takes them."""
        program = "iptables-legacy-restore" if family == 4 else "ip6tables-legacy-restore"
        with self.inside():
            subprocess.run([program, "--noflush"], input=commands, text=True, check=True)

    def rules(self) -> str:
        """Every rule that exists, of nftables and legacy xtables; a table without any is left out."""
        saved = self.output("iptables-legacy-save") + self.output("ip6tables-legacy-save")
        rules = [line for line in saved.splitlines() if line.startswith("-A")]
        chains = [line.partition(" [")[0] for line in saved.splitlines() if line.startswith(":")]
        own = [chain for chain in chains if chain.endswith(" -")]
        return "\n".join([self.output("nft -j list ruleset"), *own, *rules])

    def sysctl(self, path: str, value: str) -> None:
        """Set a value below /proc/sys, which shows the namespace of the thread that opens it."""
        with self.inside(), open(f"/proc/sys/{path}", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(value)

    def answer(self, address: str, port: int, timeout: float = 3.0, source: str = "") -> str:
        """What the server says that a connection to `address` ends up at.

        "refused" if there is none; "nothing" if there is no answer at all.
        """
        try:
            with (
                self.inside(),
                socket.create_connection((address, port), timeout, (source, 0)) as connection,
                connection.makefile() as file,
            ):
                return file.read()
        except ConnectionRefusedError:
            return "refused"
        except TimeoutError:
            return "nothing"


class Server:
    """Says `says`, a space and the client's address to every client that connects."""

    def __init__(self, namespace: Namespace, address: str, port: int, says: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with namespace.inside():
            self._socket = socket.create_server((address, port), family=family, backlog=512)
        self._says = says
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, peer = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.sendall(f"{self._says} {peer[0]}".encode())


def become_nobody() -> None:
    """Go on as a user without privileges, and with an ordinary user's PATH."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    os.environ["PATH"] = "/usr/local/bin:/usr/bin:/bin"


def _ip(*commands: str) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)
