from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodeagent.sources.kubernetes.connection import Connection, connect
from tests.apiserver import ApiServer


@pytest.fixture
def connecting(api: ApiServer, tmp_path: Path) -> Iterator[Callable[[], Connection]]:
    kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
    with ExitStack() as stack:
        yield lambda: stack.enter_context(connect(kubeconfig))
