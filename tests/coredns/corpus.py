"""Corefiles as distributions ship them, and some that use what the grammar allows."""

from pathlib import Path

FILES = sorted((Path(__file__).parent / "corefiles").iterdir())
NAMES = [file.name for file in FILES]


def corefile(name: str) -> str:
    """The text of one, line ends as they are."""
    return (Path(__file__).parent / "corefiles" / name).read_bytes().decode()
