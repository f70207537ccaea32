"""The formats of two small files of every node: hosts(5), line by line, and resolv.conf(5). Pure."""

from msgspec import Struct


def hosts_fields(line: bytes) -> tuple[str, tuple[str, ...]]:
    """Split a line of a hosts file into its address and its names in lower case; ("", ()) if it has none."""
    fields = [field.lower().decode("ascii", "backslashreplace") for field in line.partition(b"#")[0].split()]
    return (fields[0], tuple(fields[1:])) if fields else ("", ())


class ResolvConf(Struct, frozen=True):
    """The content of a resolv.conf: the name servers as written, and the last list of search domains."""

    servers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()


def parse_resolv_conf(text: str) -> ResolvConf:
    """Return what `text` says; lines that mean nothing to the C libraries are skipped."""
    servers: list[str] = []
    search: tuple[str, ...] = ()
    for line in text.splitlines():
        keyword, *values = line.split() or [""]
        if keyword == "nameserver" and values:
            servers.append(values[0])
        elif keyword in {"search", "domain"}:
            search = tuple(value.rstrip(".").lower() for value in values)
    return ResolvConf(tuple(servers), search)
