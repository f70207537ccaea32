"""Field and label selectors, parsed and matched as the real server does: `=`, and `!=` of a field.

See "Field Selectors" and "Labels and Selectors" in the Kubernetes documentation.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from . import statuses
from .resources import Object, Resource

_META_FIELDS = ("metadata.name", "metadata.namespace")
_TERM = re.compile(r"(?P<label>[^\s=!]+)(?P<unlike>!?)=(?P<value>[^\s=!]*)")

Test = Callable[[Object], bool]


@dataclass(frozen=True, slots=True)
class Selector:
    """Which objects a list or a watch asks for: those that pass all tests.

    RBAC's resourceNames look at the one name that it asks for, if it does.
    """

    tests: Sequence[Test] = ()
    name: str = ""

    def __bool__(self) -> bool:
        """Tell whether it leaves anything out."""
        return bool(self.tests)

    def matches(self, obj: Object) -> bool:
        """Tell whether an object is asked for."""
        return all(test(obj) for test in self.tests)


def parse(resource: Resource, fields: str, labels: str) -> Selector:
    """Read the values of `fieldSelector` and `labelSelector`, which may be empty.

    Raises ApiError 400 when the server does not know a field.
    """
    tests: list[Test] = []
    name = ""
    for term in filter(None, fields.split(",")):
        found = _TERM.fullmatch(term)
        assert found, f"{term!r} of a selector is not imitated"
        label, value = found.group("label", "value")
        if label not in _META_FIELDS and label not in resource.fields:
            # A type with field labels of its own words it differently from one that has only metadata's.
            raise statuses.bad_request(
                f"field label not supported: {label}"
                if resource.fields
                else f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"'
            )
        test = partial(_has, label.split("."), value, resource.fields.get(label, ""))
        tests.append(partial(_not, test) if found["unlike"] else test)
        if label == "metadata.name" and not found["unlike"]:
            name = value
    for term in filter(None, labels.split(",")):
        found = _TERM.fullmatch(term)
        assert found, f"{term!r} of a selector is not imitated"
        assert not found["unlike"], f"{term!r} of a selector is not imitated"
        tests.append(partial(_has, ["metadata", "labels", found.group("label")], found.group("value"), None))
    return Selector(tests, name)


def _has(path: Sequence[str], value: str, default: str | None, obj: Object) -> bool:
    held: object = obj
    for part in path:
        held = held.get(part) if isinstance(held, dict) else None
    return (default if held is None else held) == value


def _not(test: Test, obj: Object) -> bool:
    return not test(obj)
