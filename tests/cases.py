"""Tables of cases that a stranger reads, and adds to, without Python: YAML beside the tests."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.CSafeLoader):
    """Refuses a key that is given twice: its first cases would be none."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT002
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len({*map(str, keys)}) == len(keys), f"given twice, {node.start_mark}"
        return super().construct_mapping(node, deep=deep)


def cases_of(test: str, name: str) -> Any:  # noqa: ANN401 - whatever the file holds
    """The cases in a file of that name beside a test's own file."""
    return _Loader(Path(test).with_name(name).read_text("utf-8")).get_single_data()
