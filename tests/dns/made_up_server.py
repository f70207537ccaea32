"""A DNS server whose every answer a test decides, over UDP and TCP, on a loopback port of its own."""

import socketserver
import struct
import threading
from collections.abc import Callable, Iterable
from functools import partial
from ipaddress import ip_address
from typing import Any, Literal, Self, TypeAlias

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from nodeagent.model.addresses import Endpoint

Message: TypeAlias = dns.message.Message
Transport = Literal["udp", "tcp"]
Replying = Callable[[Message, Transport], Iterable[bytes]]
"""Makes what is sent back for a query: nothing, a packet, or several."""


class MadeUpServer:
    """The server, from `with` on. `asked` lists the questions, as `A www.example.com. udp`."""

    def __init__(self, replying: Replying) -> None:
        self._replying = replying
        self.asked: list[str] = []
        tcp = socketserver.ThreadingTCPServer(("127.0.0.1", 0), partial(_TcpTalk, self))
        self.endpoint = Endpoint(ip_address("127.0.0.1"), tcp.server_address[1])
        udp = socketserver.ThreadingUDPServer(("127.0.0.1", self.endpoint.port), partial(_UdpTalk, self))
        self._servers: list[socketserver.BaseServer] = [tcp, udp]
        self._threads = [threading.Thread(target=one.serve_forever, args=(0.01,)) for one in self._servers]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for thread in self._threads:
            thread.join()

    def replies(self, wire: bytes, transport: Transport) -> Iterable[bytes]:
        query = dns.message.from_wire(wire)
        question = query.question[0]
        self.asked.append(f"{dns.rdatatype.to_text(question.rdtype)} {question.name} {transport}")
        return self._replying(query, transport)


def answer(query: Message, *records: str, rcode: str = "NOERROR", flags: int = dns.flags.RA) -> Message:
    """Make the answer to a query with these records, each as in a zone file: `NAME TTL TYPE VALUE`.

    An SOA is put where it belongs, into the authority section.
    """
    made = dns.message.make_response(query)
    made.flags |= flags
    made.set_rcode(dns.rcode.from_text(rcode))
    for record in records:
        name, ttl, kind, value = record.split(maxsplit=3)
        section = made.authority if kind == "SOA" else made.answer
        section.append(dns.rrset.from_text(name, int(ttl), "IN", kind, value))
    return made


class _UdpTalk(socketserver.BaseRequestHandler):
    def __init__(self, made_up: MadeUpServer, *of_socketserver: Any) -> None:  # noqa: ANN401
        self._made_up = made_up
        super().__init__(*of_socketserver)

    def handle(self) -> None:
        wire, sending = self.request
        for reply in self._made_up.replies(wire, "udp"):
            sending.sendto(reply, self.client_address)


class _TcpTalk(_UdpTalk):
    def handle(self) -> None:
        with self.request.makefile("rb") as coming:
            (length,) = struct.unpack("!H", coming.read(2))
            for reply in self._made_up.replies(coming.read(length), "tcp"):
                self.request.sendall(struct.pack("!H", len(reply)) + reply)
