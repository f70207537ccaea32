"""A plugin of mypy: `dataclasses.replace` of a msgspec Struct is an error.

A Struct is no dataclass, so the call fails when it runs. mypy alone does not see that: `dataclass_transform`
makes it take a Struct for one.
"""

from collections.abc import Callable

from mypy.plugin import FunctionContext, Plugin
from mypy.types import Instance, Type, UnionType, get_proper_type

_MESSAGE = "dataclasses.replace() fails for a msgspec Struct; use a dataclass, or msgspec.structs.replace"


class ReplaceCheck(Plugin):
    """Looks at each call of `dataclasses.replace`."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """Return the check for that function, and nothing for any other."""
        return _check if fullname == "dataclasses.replace" else None


def _check(call: FunctionContext) -> Type:
    for given in call.arg_types[0]:
        if any(_is_struct(one) for one in _members(given)):
            call.api.fail(_MESSAGE, call.context)
    return call.default_return_type


def _members(given: Type) -> list[Type]:
    proper = get_proper_type(given)
    return list(proper.items) if isinstance(proper, UnionType) else [proper]


def _is_struct(given: Type) -> bool:
    proper = get_proper_type(given)
    return isinstance(proper, Instance) and proper.type.has_base("msgspec.Struct")


def plugin(_version: str) -> type[Plugin]:
    """Return what mypy loads."""
    return ReplaceCheck
