"""The JSON Schema of the configuration file, for editors and for the Helm chart: made from the options.

It accepts all that `reading` accepts, which checks some texts more strictly than a pattern can: for example,
that a range has no host bits.
"""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from textwrap import dedent
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.inspect import (
    BoolType,
    CustomType,
    IntType,
    LiteralType,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
)

from nodeagent.config.option_types import (
    AbsolutePath,
    AddressRange,
    DnsName,
    DnsServer,
    InterfaceName,
    ListenAddress,
    PodNetwork,
    RelayRange4,
    RelayRange6,
)
from nodeagent.config.options import Config
from nodeagent.model.facts import HOSTNAME, LONGEST_HOSTNAME

CONFIG_SCHEMA_VERSION = "1"
"""Raised whenever an option is removed or changes its meaning; new options alone do not raise it."""

Schema = dict[str, Any]

_TEXTS: dict[type, Schema] = {
    AbsolutePath: {"pattern": "^/"},
    DnsName: {"pattern": f"^{HOSTNAME}$", "maxLength": LONGEST_HOSTNAME},
    DnsServer: {"examples": ["192.0.2.53", "192.0.2.53:5353", "[2001:db8::53]:5353"], "minLength": 2},
    InterfaceName: {"pattern": "^[A-Za-z0-9_.-]{1,15}$"},
    ListenAddress: {"pattern": r"^$|:[1-9][0-9]{0,4}$", "examples": ["127.0.0.1:9467", "[::1]:9467", ""]},
    AddressRange: {
        "pattern": "^[0-9a-fA-F:.]+(/[0-9]{1,3})?$",
        "examples": ["203.0.113.0/24", "2001:db8::/32"],
    },
    PodNetwork: {"pattern": "/[0-9]{1,3}$", "examples": ["10.244.1.0/24", "fd00:10:244::/64"]},
    RelayRange4: {"pattern": r"^[0-9.]+/(1[6-9]|2[0-9])$"},
    RelayRange6: {"pattern": r"^[0-9a-fA-F:.]+/(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-5])$"},
}


def config_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of the configuration file. Pure."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Made by `make schema` from nodeagent/config/options.py",
        "title": "The configuration of nodeagent",
        **struct_schema(Config),
    }


def struct_schema(kind: type[Struct]) -> Schema:
    """Return the schema of a Struct's mapping in the file, with its docstrings as descriptions. Pure.

    A key without a value (null) means the default, as in the file.
    """
    described = _descriptions(kind)
    properties: Schema = {}
    defaults = {field.name: field for field in msgspec.structs.fields(kind)}
    for field in _info(kind).fields:
        found = {"description": described[field.name]} if field.name in described else {}
        found |= _schema(field.type)
        default = _default(defaults[field.name])
        if default is not msgspec.NODEFAULT:
            found["default"] = default
        properties[field.encode_name] = found if field.required else _or_null(found)
    required = [field.encode_name for field in _info(kind).fields if field.required]
    return {
        "description": inspect.cleandoc(kind.__doc__ or "").replace("\n", " "),
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _info(kind: type[Struct]) -> StructType:
    found = msgspec.inspect.type_info(kind)
    if not isinstance(found, StructType):
        raise TypeError(f"{kind} is not a Struct")
    return found


def _schema(kind: Type) -> Schema:  # noqa: PLR0911 - one for each kind of type
    match kind:
        case StructType(cls=cls):
            return struct_schema(cls)
        case VarTupleType(item_type=item):
            return {"type": "array", "items": _schema(item)}
        case LiteralType(values=values):
            return {"enum": list(values)}
        case BoolType():
            return {"type": "boolean"}
        case IntType(ge=lowest, le=highest):
            limits = {"minimum": lowest, "maximum": highest}
            return {"type": "integer", **{key: value for key, value in limits.items() if value is not None}}
        case StrType():
            return {"type": "string"}
        case CustomType(cls=cls):
            return {"type": "string", **_TEXTS[cls]}
        case UnionType(types=types):
            (one,) = [item for item in types if not isinstance(item, NoneType)]
            return _schema(one)
    raise TypeError(f"an option of the type {kind} has no schema")


def _or_null(schema: Schema) -> Schema:
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


def _default(field: msgspec.structs.FieldInfo) -> Any:  # noqa: ANN401 - whatever the option holds
    """Return an option's default as it would be written; NODEFAULT for a section and for what has none."""
    default = field.default
    if default is msgspec.NODEFAULT or default is None or isinstance(default, Struct):
        return msgspec.NODEFAULT
    if isinstance(default, bool | int):
        return default
    return list(default) if isinstance(default, tuple) else str(default)


def _descriptions(kind: type[Struct]) -> dict[str, str]:
    """Return the text below each field of a Struct, including those of its base classes."""
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if not (issubclass(cls, Struct) and cls is not Struct):
            continue
        match ast.parse(dedent(inspect.getsource(cls))).body:
            case [ast.ClassDef(body=body)]:
                found |= dict(_described_fields(body))
    return found


def _described_fields(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, following in pairwise(body):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())
