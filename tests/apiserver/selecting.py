"""Field and label selectors, parsed and matched as the real server does.

See "Field Selectors" and "Labels and Selectors" in the Kubernetes documentation.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import statuses
from .resources import Object, Resource

_META_FIELDS = ("metadata.name", "metadata.namespace")
_FIELD_TERM = re.compile(r"(?P<label>[^=!]+)(?P<operator>==|=|!=)(?P<value>.*)")
_LABEL_TERMS = re.compile(r",(?![^()]*\))")
_LABEL_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_LABEL_EQUAL = re.compile(r"(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!]*)")
_LABEL_EXISTS = re.compile(r"(?P<absent>!?)\s*(?P<key>[^\s=!(),]+)")

Test = Callable[[Object], bool]


@dataclass(frozen=True, slots=True)
class Selector:
    """Which objects a list or a watch asks for.

    Attributes:
        tests: an object must pass all of them.
        name: the one name that it asks for, else empty; RBAC's resourceNames look at it.
    """

    tests: Sequence[Test] = ()
    name: str = ""

    def __bool__(self) -> bool:
        """Tell whether it leaves anything out."""
        return bool(self.tests)

    def matches(self, obj: Object) -> bool:
        """Tell whether an object is asked for."""
        return all(test(obj) for test in self.tests)


def parse(resource: Resource, fields: str, labels: str, *, type_fields: bool = True) -> Selector:
    """Read the query's selectors.

    Args:
        resource: what is selected.
        fields: the value of `fieldSelector`, may be empty.
        labels: the value of `labelSelector`, may be empty.
        type_fields: whether the server knows fields beyond those of metadata for this resource; servers
            before 1.31 know none for services.

    Raises:
        ApiError: 400 when the server does not know a field or cannot read a selector.
    """
    tests: list[Test] = []
    name = ""
    for term in filter(None, fields.split(",")):
        found = _FIELD_TERM.fullmatch(term)
        if not found:
            raise statuses.bad_request(f"invalid selector: '{fields}'; can't understand '{term}'")
        label, operator, value = found.group("label", "operator", "value")
        tests.append(_field_test(resource, label, value, wanted=operator != "!=", type_fields=type_fields))
        if label == "metadata.name" and operator != "!=":
            name = value
    tests += [_label_test(term.strip()) for term in filter(None, _LABEL_TERMS.split(labels))]
    return Selector(tests, name)


def named(name: str) -> Selector:
    """Give the selector of one object, for a watch on its path."""
    return Selector([lambda obj: obj["metadata"]["name"] == name], name)


def _field_test(resource: Resource, label: str, value: str, *, wanted: bool, type_fields: bool) -> Test:
    own_fields = resource.fields if type_fields else {}
    if label not in _META_FIELDS and label not in own_fields:
        # A type with field labels of its own words it differently from one that has only those of metadata.
        raise statuses.bad_request(
            f"field label not supported: {label}"
            if own_fields
            else f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        )
    path = label.split(".")
    default = own_fields.get(label, "")

    def test(obj: Object) -> bool:
        held: object = obj
        for part in path:
            held = held.get(part) if isinstance(held, dict) else None
        if held is None:
            held = default
        text = str(held).lower() if isinstance(held, bool) else str(held)
        return (text == value) == wanted

    return test


def _labels_of(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def _label_test(term: str) -> Test:
    if found := _LABEL_SET.fullmatch(term):
        key, operator = found.group("key", "operator")
        values = {value.strip() for value in found["values"].split(",")}
        if operator == "in":
            return lambda obj: _labels_of(obj).get(key) in values
        return lambda obj: _labels_of(obj).get(key) not in values
    if found := _LABEL_EQUAL.fullmatch(term):
        key, operator, value = found.group("key", "operator", "value")
        # An object without the label passes `!=`, as in the real server.
        return lambda obj: (_labels_of(obj).get(key) == value) == (operator != "!=")
    if found := _LABEL_EXISTS.fullmatch(term):
        absent, key = found.group("absent", "key")
        return lambda obj: (key in _labels_of(obj)) == (not absent)
    raise statuses.bad_request(f"unable to parse requirement: {term!r}")
