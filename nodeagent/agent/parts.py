"""The parts of the node that nodeagent keeps, each by an applier of its own."""

from typing import Literal

Part = Literal["addresses", "relay", "dnat", "hosts"]
ALL_PARTS: frozenset[Part] = frozenset({"addresses", "relay", "dnat", "hosts"})
