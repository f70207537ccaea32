"""Renders the kustomizations in daemonset/: the few features of kustomize that are used there, and no others.

What this does not know is an error. Where there is a `kubectl`, test_manifests.py compares the two.

    python -m tests.daemonset.kustomize daemonset > daemonset/deploy.yaml
"""

import json
import sys
from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DAEMONSET = ROOT / "daemonset"

Object = dict[str, Any]
"""One API object."""

_HEADER = """\
# Made from daemonset/base by `make deploy`. The comments with the reasons are there: edit them there.
"""
_KNOWN = {"apiVersion", "kind", "resources", "components", "patches", "images"}
# How strategic merge pairs the items of a list (patchMergeKey in k8s.io/api); other lists are replaced whole.
_MERGE_KEYS = {"containers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath"}
_DIRECTIVE = "$patch"


class UnknownFeatureError(Exception):
    """A kustomization asks for something that this renderer does not know."""


def render(directory: Path) -> list[Object]:
    return apply(directory, [])


def text(directory: Path) -> str:
    documents = [
        yaml.dump(found, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=False)
        for found in render(directory)
    ]
    return _HEADER + "---\n".join(documents)


def documents(text: str) -> list[Object]:
    """Read YAML, without documents that are empty; a text that was read before costs nearly nothing."""
    found: list[Object] = json.loads(_as_json(text))
    return found


@cache
def _as_json(text: str) -> str:
    """Read by libyaml, ten times faster than yaml.safe_load_all; a time is a text, as in the API."""
    found = [one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one]
    return json.dumps(found, default=datetime.isoformat)


def apply(directory: Path, objects: list[Object]) -> list[Object]:
    """`objects`, and what the directory's kustomization adds to them and changes of them."""
    file = directory / "kustomization.yaml"
    (wanted,) = documents(file.read_text("utf-8"))
    if unknown := wanted.keys() - _KNOWN:
        raise UnknownFeatureError(f"{file}: {', '.join(sorted(unknown))}")
    for name in wanted.get("resources", []):
        objects = objects + _resource(directory / name)
    for name in wanted.get("components", []):
        objects = apply(directory / name, objects)
    for patch in wanted.get("patches", []):
        if set(patch) not in ({"path"}, {"patch"}):
            raise UnknownFeatureError(f"{file}: a patch of {sorted(patch)}")
        written = (directory / patch["path"]).read_text("utf-8") if "path" in patch else patch["patch"]
        for document in documents(written):
            objects = _patched(objects, document, file)
    for image in wanted.get("images", []):
        if not set(image) <= {"name", "newName", "newTag", "digest"}:
            raise UnknownFeatureError(f"{file}: an image with {sorted(image)}")
        objects = [_with_image(found, image) for found in objects]
    return objects


def _resource(path: Path) -> list[Object]:
    if path.is_dir():
        return render(path)
    return documents(path.read_text("utf-8"))


def _identity(found: Object) -> tuple[str, str, str, str]:
    metadata = found["metadata"]
    return found["apiVersion"], found["kind"], metadata.get("namespace", ""), metadata["name"]


def _patched(objects: list[Object], patch: Object, file: Path) -> list[Object]:
    if not any(_identity(found) == _identity(patch) for found in objects):
        raise UnknownFeatureError(f"{file}: a patch of {_identity(patch)}, which is not there")
    merged = [_merged(found, patch) if _identity(found) == _identity(patch) else found for found in objects]
    return [found for found in merged if found is not None]


def _merged(old: Any, patch: Any, key: str = "") -> Any:  # noqa: ANN401 - whatever JSON holds
    """Strategic merge of `patch` into `old`, the value of `key`; None for what is deleted."""
    if isinstance(old, dict) and isinstance(patch, dict):
        return _merged_maps(old, patch)
    if isinstance(old, list) and isinstance(patch, list) and key in _MERGE_KEYS:
        return _merged_lists(old, patch, _MERGE_KEYS[key])
    return deepcopy(patch)


def _merged_maps(old: Object, patch: Object) -> Object | None:
    if _DIRECTIVE in patch:
        if patch[_DIRECTIVE] != "delete":
            raise UnknownFeatureError(f"{_DIRECTIVE}: {patch[_DIRECTIVE]}")
        return None
    result = deepcopy(old)
    for name, value in patch.items():
        found = _merged(old[name], value, name) if name in old else deepcopy(value)
        if found is None:
            result.pop(name, None)
        else:
            result[name] = found
    return result


def _merged_lists(old: list[Object], patch: list[Object], key: str) -> list[Object]:
    changes = {item[key]: item for item in patch}
    merged = {item[key]: _merged(item, changes.get(item[key], {})) for item in old}
    if new := [name for name in changes if name not in merged]:
        # kustomize puts what a patch names first, in its order, if anything of it is new.
        merged = {**{name: merged.get(name) for name in changes}, **merged}
        merged.update({name: deepcopy(changes[name]) for name in new})
    return [item for item in merged.values() if item is not None]


def _with_image(found: Object, image: Mapping[str, str]) -> Object:
    if "template" not in found.get("spec", {}):
        return found
    changed = deepcopy(found)
    for container in changed["spec"]["template"].get("spec", {}).get("containers", []):
        name, _, tag = container["image"].partition(":")
        if name == image["name"]:
            mark = f"@{image['digest']}" if "digest" in image else f":{image.get('newTag', tag or 'latest')}"
            container["image"] = f"{image.get('newName', name)}{mark}"
    return changed


class _Dumper(yaml.SafeDumper):
    """Block style throughout: text of several lines as such, no references from one place to another."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class asks
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT002
        super().increase_indent(flow, False)  # noqa: FBT003 - lists are indented below their key


def _text_node(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text_node)


if __name__ == "__main__":
    sys.stdout.write(text(Path(sys.argv[1])))
