"""Regular expressions for one label of a name, as Go's regexp package takes them (RE2: no lookahead).

Names are compared in lower case and hold only letters, digits and hyphens, so no character needs an escape.
"""

from collections.abc import Iterable


def any_of(labels: Iterable[str]) -> str:
    """Matches exactly the given labels."""
    found = sorted(labels)
    return found[0] if len(found) == 1 else f"(?:{'|'.join(found)})"


def any_but(labels: Iterable[str]) -> str:
    """Matches every label but the given ones: whatever leaves their tree of letters, or stops short in it."""
    excluded = sorted(set(labels))
    return _other_than(["", *excluded]) if excluded else "[^.]+"


def _other_than(words: list[str]) -> str:
    """Matches all texts without a dot but `words` (sorted); the empty one too, if it is not among them."""
    rests: dict[str, list[str]] = {}
    for word in words:
        if word:
            rests.setdefault(word[0], []).append(word[1:])
    if not rests:
        return "[^.]+"
    # A hyphen means itself only at the end of a class.
    heads = "".join(sorted(rests, key=lambda head: (head == "-", head)))
    ways = [f"[^.{heads}][^.]*", *(head + _other_than(rest) for head, rest in rests.items())]
    return f"(?:{'|'.join(ways)}){'' if '' in words else '?'}"
