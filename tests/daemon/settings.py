"""The configuration of the agents under test: the testbed's, with the load balancers that tests make."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.testbed.world import NODEAGENT_CONFIG

MADE_NAMESPACE = "made"
MADE_SERVICES = 5

_SERVICES = [
    {"namespace": "ingress-nginx", "name": "ingress-nginx-controller"},
    *({"namespace": MADE_NAMESPACE, "name": f"lb-{number}"} for number in range(MADE_SERVICES)),
]


def write_config(file: Path, **sections: Mapping[str, object]) -> Path:
    """Write the configuration, with these options, by section, in place of its own.

    Returns:
        The file.
    """
    document = yaml.safe_load(NODEAGENT_CONFIG.read_text(encoding="utf-8"))
    document["loadBalancers"]["services"] = _SERVICES
    for name, options in sections.items():
        document.setdefault(name, {}).update(options)
    # An agent may read it at any moment: it must never see half of it.
    temporary = file.with_suffix(".new")
    temporary.write_text(yaml.safe_dump(document), encoding="utf-8")
    return temporary.replace(file)
