"""A node of the cluster: a host with kube-proxy's rules and a container runtime."""

from tests.testbed.container_runtime import ContainerRuntime, PullResult
from tests.testbed.kube_proxy import KubeProxy
from tests.testbed.namespaces import Host
from tests.testbed.oci_image import Image


class Node(Host):
    """A host that the cluster runs on; the world gives it its parts once its network exists."""

    kube_proxy: KubeProxy
    containers: ContainerRuntime

    def pull(self, image: Image) -> PullResult:
        """Pull an image with containerd; `ok` only when its layer arrived whole."""
        return self.containers.pull(image)
