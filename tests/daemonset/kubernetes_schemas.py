from functools import cache

import kubernetes_validate
from kubernetes_validate import utils

from tests.daemonset.kustomize import Object

_OLDEST = 31
_NEWEST = int(str(kubernetes_validate.latest_version()).split(".")[1])
VERSIONS = [f"1.{minor}" for minor in range(_OLDEST, _NEWEST + 1)]

# For each object it lists its directories, and reads the definitions of all kinds: most of its time.
utils.all_versions = cache(utils.all_versions)
utils.schema_contents = cache(utils.schema_contents)


def validate(found: Object, version: str) -> None:
    kubernetes_validate.validate(found, version, strict=True)
