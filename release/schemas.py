"""The JSON Schemas of the configuration file and of all that commands and the agent write: `make schema`.

The configuration's is for editors and for the Helm chart. It accepts all that `reading` accepts, which checks
some texts more strictly than a pattern can: for example, that a range has no host bits.

python -m release.schemas
"""

import inspect
import json
import re
from pathlib import Path
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

from nodeagent.cli.cluster import FleetDocument
from nodeagent.cli.doctor import DoctorDocument
from nodeagent.cli.report import SCHEMA_VERSION, Document
from nodeagent.config.option_types import (
    AbsolutePath,
    AddressRange,
    DnsName,
    DnsServer,
    InterfaceName,
    InterfacePattern,
    PodNetwork,
    PortRange,
    RelayRange4,
    RelayRange6,
    TelemetryAddress,
)
from nodeagent.config.options import Config
from nodeagent.model.addresses import HOSTNAME, LONGEST_HOSTNAME
from nodeagent.observe.status import AGENT_STATUS_SCHEMA_VERSION, AgentStatus

CONFIG_SCHEMA_VERSION = "1"
"""Raised whenever an option is removed or changes its meaning; new options alone do not raise it."""

Schema = dict[str, Any]

_ROOT = Path(__file__).parents[1]
CHART = _ROOT / "charts" / "nodeagent"
VALUES_SCHEMA = CHART / "values.schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_OWN_TO_THE_CHART = {"relay": ("runDir", "launch"), "hosts": ("file",)}
"""Where the pod's mounts are: with other values the agent would look in directories that do not exist."""

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(\.{_OCTET}){{3}}"
_LENGTH4 = "(3[0-2]|[12]?[0-9])"
_IPV6 = "[0-9a-fA-F]*:[0-9a-fA-F:.]+"
_LENGTH6 = "(12[0-8]|1[01][0-9]|[1-9]?[0-9])"

_TEXTS: dict[type, Schema] = {
    AbsolutePath: {"pattern": "^/"},
    DnsName: {"pattern": f"^{HOSTNAME}$", "maxLength": LONGEST_HOSTNAME},
    DnsServer: {"examples": ["192.0.2.53", "192.0.2.53:5353", "[2001:db8::53]:5353"], "minLength": 2},
    InterfaceName: {"pattern": "^[A-Za-z0-9_.-]{1,15}$"},
    InterfacePattern: {"pattern": r"^([A-Za-z0-9_.-]{1,15}|[A-Za-z0-9_.-]{1,14}\*)$"},
    TelemetryAddress: {"pattern": r"^$|:[1-9][0-9]{0,4}$", "examples": ["127.0.0.1:9467", "[::1]:9467", ""]},
    AddressRange: {
        "pattern": f"^({_IPV4}(/{_LENGTH4})?|{_IPV6}(/{_LENGTH6})?)$",
        "examples": ["203.0.113.0/24", "2001:db8::/32"],
    },
    PortRange: {"pattern": "^[0-9]{1,5}-[0-9]{1,5}$", "examples": ["30000-32767"]},
    PodNetwork: {
        "pattern": f"^({_IPV4}/{_LENGTH4}|{_IPV6}/{_LENGTH6})$",
        "examples": ["10.244.1.0/24", "fd00:10:244::/64"],
    },
    RelayRange4: {"pattern": f"^{_IPV4}/(1[6-9]|2[0-9])$"},
    RelayRange6: {"pattern": f"^{_IPV6}/(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-5])$"},
}


def schemas() -> dict[str, Schema]:
    """Return every published schema (draft 2020-12) by the name of its file. Pure."""
    return {
        f"report-v{SCHEMA_VERSION}": schema_of(Document),
        f"doctor-v{SCHEMA_VERSION}": schema_of(DoctorDocument),
        f"config-v{CONFIG_SCHEMA_VERSION}": config_schema(),
        f"fleet-v{SCHEMA_VERSION}": schema_of(FleetDocument),
        f"agent-status-v{AGENT_STATUS_SCHEMA_VERSION}": schema_of(AgentStatus),
    }


def schema_of(document: type[Struct]) -> Schema:
    """Return the schema of a document, the same under every version of Python. Pure.

    Docstrings become descriptions, without the indentation that Python keeps up to 3.12.
    """
    schema: Schema = json.loads(json.dumps(msgspec.json.schema(document)))
    for definition in schema["$defs"].values():
        definition["description"] = inspect.cleandoc(definition["description"])
    return {
        "$schema": _DIALECT,
        "$comment": f"Made by `make schema` from {document.__module__.replace('.', '/')}.py",
        **schema,
    }


def config_schema() -> Schema:
    """Return the schema of the configuration file. Pure."""
    return {
        "$schema": _DIALECT,
        "$comment": "Made by `make schema` from nodeagent/config/options.py",
        "title": "The configuration of nodeagent",
        **_struct_schema(Config),
    }


def chart_config_schema() -> Schema:
    """Return the schema of the chart's value `config`, by which Helm checks it before it sends any. Pure."""
    found = _struct_schema(Config)
    for section, options in _OWN_TO_THE_CHART.items():
        for option in options:
            del found["properties"][section]["properties"][option]
    return found


def _struct_schema(kind: type[Struct]) -> Schema:
    """Return the schema of a Struct's mapping in the file, with its docstrings as descriptions. Pure.

    A key without a value (null) means the default, as in the file.
    """
    about, meanings = described(kind)
    properties: Schema = {}
    defaults = {field.name: field for field in msgspec.structs.fields(kind)}
    for field in _info(kind).fields:
        found = {"description": meanings[field.name]} if field.name in meanings else {}
        found |= _schema(field.type)
        default = _default(defaults[field.name])
        if default is not msgspec.NODEFAULT:
            found["default"] = default
        properties[field.encode_name] = found if field.required else _or_null(found)
    required = [field.encode_name for field in _info(kind).fields if field.required]
    return {
        "description": about,
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
            return _struct_schema(cls)
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


def described(kind: type[Struct]) -> tuple[str, dict[str, str]]:
    """Return what the docstring says of a Struct, and of each field under "Attributes:"."""
    about, _, fields = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:\n")
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", fields, re.MULTILINE)
    return " ".join(about.split()), {name: " ".join(text.split()) for name, text in found}


def main() -> None:
    """Write docs/schema/, and `properties.config` in the chart's schema; the rest of that file stays."""
    values = json.loads(VALUES_SCHEMA.read_text("utf-8"))
    values["properties"]["config"] = chart_config_schema()
    published = {_ROOT / "docs" / "schema" / f"{name}.json": found for name, found in schemas().items()}
    for file, found in {**published, VALUES_SCHEMA: values}.items():
        file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
