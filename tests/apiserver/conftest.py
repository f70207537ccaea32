from collections.abc import Iterator

import pytest

from .servers import ETCD, KUBE_APISERVER, Server, real, simulated


@pytest.fixture(scope="module", params=["simulated", "real"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if request.param == "simulated":
        with simulated() as started:
            yield started
    elif not (KUBE_APISERVER and ETCD):
        pytest.skip("KUBE_APISERVER= and ETCD= are not given: no real kube-apiserver")
    else:
        with real(tmp_path_factory.mktemp("kube-apiserver")) as started:
            yield started
