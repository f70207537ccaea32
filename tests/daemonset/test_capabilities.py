import re

import pytest

from tests.daemon.managed_state import metadata_of, names, read_managed_state
from tests.daemonset.deployment import Deployment, pod_template
from tests.daemonset.kustomize import Object
from tests.daemonset.manifests import deployed, workload, workloads
from tests.testbed.addresses import SITE
from tests.testbed.world import World

_ADDED = [
    (name, capability)
    for name, one in workloads(deployed()).items()
    for capability in one.container["securityContext"]["capabilities"]["add"]
]
_WITHOUT = {
    "NET_ADMIN": "Operation not permitted; it needs root or CAP_NET_ADMIN",
    "NET_BIND_SERVICE": "HAProxy could not use its new configuration",
}
"""What the agent says when a capability is missing."""


@pytest.mark.parametrize(("name", "capability"), _ADDED)
def test_each_capability_is_needed(world: World, deployment: Deployment, name: str, capability: str) -> None:
    template = pod_template(workload(deployed(), name))
    _capabilities(template).remove(capability)
    lacking = name == "nodeagent-relay"
    relay = deployment.relay_pod(template=template if lacking else None)
    pod = deployment.pod(None if lacking else template)
    pod.container.await_line(_WITHOUT[capability])
    if lacking:
        assert "cannot bind socket (Permission denied) for [169.254.66." in relay.container.log()
    # Nothing points at a relay that does not answer; the node is as it was without the agent.
    assert pod.container.probe("readinessProbe").exit_code != 0
    assert read_managed_state(world.node1).names == {}
    assert read_managed_state(world.node1).redirects == {}


def test_a_hosts_file_of_another_user(world: World, deployment: Deployment) -> None:
    """It is reported, and the other half works; two more capabilities are needed."""
    node = world.node1
    hosts = node.read_hosts()
    node.run(["chown", "1000:1000", "/etc/hosts"])
    try:
        deployment.relay_pod()
        pod = deployment.pod()
        pod.container.await_line(
            '"component": "hosts", "reason": "can\'t replace /host/etc/hosts: Operation not perm'
        )
        assert re.search(r"the agent lacks a capability \(CAP_CHOWN, CAP_FOWNER", pod.container.log())
        assert node.read_hosts() == hosts
        assert node.curl(f"https://{SITE}/").ok
        pod.remove()

        template = deployment.template
        _capabilities(template).extend(["CHOWN", "FOWNER"])
        pod = deployment.pod(template)
        pod.await_ready()
        assert SITE in names(node)
        assert metadata_of(node, "/etc/hosts").startswith("644 1000:1000")
    finally:
        node.run(["chown", "0:0", "/etc/hosts"])


def _capabilities(template: Object) -> list[str]:
    (spec,) = template["spec"]["containers"]
    added: list[str] = spec["securityContext"]["capabilities"]["add"]
    return added
