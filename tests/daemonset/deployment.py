"""A workload in the testbed: its manifests as they are, an API server with its RBAC, its pods."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Self, TypeAlias

import yaml

from tests.apiserver.access import rules_bound_to
from tests.daemon.cluster_api import WHERE_IT_LISTENS, ClusterApi
from tests.daemonset.image_root import ImageRoot
from tests.daemonset.kustomize import Object
from tests.daemonset.manifests import Workload, deployed, workload
from tests.daemonset.pods import Pod
from tests.testbed.agent import Agent
from tests.testbed.errors import log_tail
from tests.testbed.namespaces import Host
from tests.testbed.world import World

NAMESPACE = "nodeagent"
_LEFT_BY_KUBELET = ("/run/nodeagent", "/run/systemd")
"""What the kubelet makes on the node because the pod's volumes name it: empty directories."""

_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
"""Where the API server mounts a ServiceAccount's token."""
_TOKEN = "the-service-accounts-token"  # noqa: S105 - of the simulated server
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "loadBalancers": {
        "services": [
            {"namespace": "ingress-nginx", "name": "ingress-nginx-controller", "proxyProtocol": "v1"}
        ]
    },
    "hosts": {"verify": "allow", "allow": ["example.test"]},
}
"""What an administrator of this world would set."""


class Deployment:
    """`kubectl apply -k daemonset/`: pods of a workload run on node1, or on the node that a test names.

    A workload's ServiceAccount has its name, `options` go to the configuration.
    """

    def __init__(  # noqa: PLR0913 - what an administrator chooses
        self,
        world: World,
        image: ImageRoot,
        directory: Path,
        objects: Sequence[Object] | None = None,
        *,
        name: str = "nodeagent",
        options: Mapping[str, Mapping[str, object]] = OPTIONS,
    ) -> None:
        self.node: Host = world.node1
        self._image = image
        self._directory = directory
        self._options = options
        self._objects = objects or deployed()
        self._workload = workload(self._objects, name)
        self._namespace: str = self._workload.object["metadata"]["namespace"]
        self._pods: list[Pod] = []
        self.relays: list[Pod] = []
        """The relay pods that were started and have not ended."""
        directory.mkdir()
        self.api = ClusterApi(world.lb, directory)

    def __enter__(self) -> Self:
        self.api.reset()
        name = self._workload.name
        account = f"system:serviceaccount:{self._namespace}:{name}"
        self.api.access.require_token(_TOKEN, account)
        self.api.access.allow_only(rules_bound_to(self._objects, self._namespace, name), account)
        self.api.store.apply(deepcopy(self._workload.object))
        return self

    def __exit__(self, *_: object) -> None:
        for pod in self._pods:
            pod.remove()
            # Shown with a test that failed.
            print(log_tail(pod.container.process.log))
        self.api.close()
        # What a test left that ended early, or that is about what stays.
        for node in {self.node, *(pod.node for pod in self._pods)}:
            Agent(node).cleanup()
            node.run(["rm", "-rf", *_LEFT_BY_KUBELET])

    @property
    def template(self) -> Object:
        return pod_template(self._workload)

    def delete(self) -> None:
        """Delete the DaemonSet; the pods are the caller's."""
        self.api.store.delete("daemonsets", "nodeagent", NAMESPACE)

    def pod(self, template: Object | None = None, node: Host | None = None) -> Pod:
        """Start a pod; of another template, or on another node than node1, if one is given."""
        pod = Pod(
            node or self.node,
            template or self.template,
            self._directory,
            image=(self._image.path, self._image.environment),
            contents={
                "config": {"nodeagent.yaml": self._config()},
                "token": {
                    "token": _TOKEN,
                    "ca.crt": self.api.certificate.read_text(),
                    "namespace": self._namespace,
                },
            },
            variables=WHERE_IT_LISTENS,
        )
        pod.start()
        self._pods.append(pod)
        return pod

    def relay_pod(self, template: Object | None = None) -> Pod:
        pod = self.pod(template or pod_template(workload(self._objects, "nodeagent-relay")))
        self.relays.append(pod)
        return pod

    def ready_pod(self) -> Pod:
        """Start an agent's pod, and the relay's if there is none; returns the agent's, with both ready."""
        if not self.relays:
            self.relay_pod()
        pod = self.pod()
        for each in (pod, *self.relays):
            each.await_ready()
        return pod

    def _config(self) -> str:
        (config_map,) = [one for one in self._objects if one["kind"] == "ConfigMap"]
        document = yaml.safe_load(config_map["data"]["nodeagent.yaml"])
        for section, options in self._options.items():
            document.setdefault(section, {}).update(options)
        return yaml.safe_dump(document)


Deploy: TypeAlias = Callable[..., Deployment]
"""Called with what a `Deployment` takes after its directory."""


def pod_template(pods: Workload) -> Object:
    """Copy a pod's template as API server and kubelet see it: the user for each container, and the token."""
    template: Object = deepcopy(pods.template)
    spec = template["spec"]
    of_pod = {key: value for key, value in spec["securityContext"].items() if key.startswith("runAs")}
    of_pod.pop("runAsNonRoot", None)
    (container,) = spec["containers"]
    container["securityContext"] = {**of_pod, **container["securityContext"]}
    if spec["automountServiceAccountToken"]:
        container["volumeMounts"].append({"name": "token", "mountPath": _TOKEN_PATH, "readOnly": True})
        spec["volumes"].append({"name": "token", "projected": {"defaultMode": 0o644}})
    return template
