"""What an API server does with a MutatingAdmissionPolicy: the printed one is applied to recorded objects.

The expressions are evaluated by cel-python, an implementation of CEL of its own (without cel-go's optional
types, which the policy does not use). What surrounds them follows "Mutating Admission Policy": conditions are
all to be true, an error in one is failurePolicy's, and a JSON patch is RFC 6902's.
"""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel

from tests.daemonset.kustomize import documents

Object = dict[str, Any]


class JSONPatch(celtypes.MessageType):
    """The type that a policy's expression makes."""


@cache
def _environment() -> celpy.Environment:
    """Building its parser takes half a second."""
    return celpy.Environment(annotations={"JSONPatch": JSONPatch})


@cache
def _program(expression: str) -> celpy.Runner:
    """Two of a policy's three expressions are the same in each, and compiling one takes a while."""
    return _environment().program(_environment().compile(expression))


class Policy:
    """A policy as `kubectl apply` takes it.

    Args:
        text: the policy and its binding, as YAML.
    """

    def __init__(self, text: str) -> None:
        self.policy, self.binding = documents(text)
        assert self.binding["spec"]["policyName"] == self.policy["metadata"]["name"]
        spec = self.policy["spec"]
        self._conditions = [_program(one["expression"]) for one in spec["matchConditions"]]
        self._patches = [_program(one["jsonPatch"]["expression"]) for one in spec["mutations"]]

    def admit(self, obj: Object, resource: str = "services/status") -> Object:
        """Return the object as it is stored when it is written to `resource`, as an update."""
        assert self.policy["spec"]["failurePolicy"] == "Ignore"
        rules = self.policy["spec"]["matchConstraints"]["resourceRules"]
        if not any(resource in rule["resources"] and "UPDATE" in rule["operations"] for rule in rules):
            return obj
        result = deepcopy(obj)
        variables = {"object": json_to_cel(obj)}
        if not all(bool(condition.evaluate(variables)) for condition in self._conditions):
            return result
        for patch in self._patches:
            operations: Any = patch.evaluate({"object": json_to_cel(result)})
            for operation in operations:
                _apply(result, {str(key): str(value) for key, value in operation.items()})
        return result


def _apply(document: Object, operation: Mapping[str, str]) -> None:
    """One operation of a JSON patch; `add` to an object replaces what is there (RFC 6902, 4.1)."""
    assert operation["op"] == "add", operation
    *parents, last = operation["path"].removeprefix("/").split("/")
    target: Any = document
    for step in parents:
        target = target[int(step)] if isinstance(target, list) else target[step]
    target[last] = operation["value"]
