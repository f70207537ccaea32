"""Whether the simulated API is the one that its own tests passed on: `make test-apiserver` records it."""

from hashlib import sha256
from pathlib import Path

_FOLDER = Path(__file__).parent
RECORD = _FOLDER / "tested.sha256"


def digest() -> str:
    """Return the SHA-256 of all modules in this folder, with their names."""
    modules = sorted(_FOLDER.glob("*.py"))
    parts = [each.name.encode() + b"\0" + sha256(each.read_bytes()).digest() for each in modules]
    return sha256(b"".join(parts)).hexdigest()


if __name__ == "__main__":
    RECORD.write_text(f"{digest()}\n", encoding="ascii")
