"""What must not change of a file that is replaced."""

from tests.testbed.namespaces import Host


def metadata_of(node: Host, path: str) -> str:
    """Return a file's mode, owner, ACL and extended attributes."""
    return node.run(
        ["sh", "-c", 'stat --format="%a %u:%g" "$1"; getfattr --absolute-names -d -m - "$1"', "sh", path]
    ).stdout
