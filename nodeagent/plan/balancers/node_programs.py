"""What other programs of a node have: ports that daemons bind, interfaces of data planes and plugins."""

from collections.abc import Mapping

LOAD_BALANCER_INTERFACES = frozenset({"kube-ipvs0", "kube-dummy-if", "kube-lb0"})
"""Where kube-proxy (ipvs), kube-router and PureLB keep load balancers' addresses: they are not the node's."""

_CILIUM = (
    "Cilium's ranges",
    "kubectl get ciliumnodes -o custom-columns=NODE:.metadata.name,PODS:.spec.ipam.podCIDRs",
)
_CALICO = ("Calico's pools", "kubectl get ippools -o custom-columns=POOL:.spec.cidr")
POD_INTERFACES: Mapping[str, tuple[str, str]] = {
    "cilium_host": _CILIUM,
    "tunl0": _CALICO,
    "vxlan.calico": _CALICO,
    "vxlan-v6.calico": _CALICO,
    "wireguard.cali": _CALICO,
}
"""Interfaces to which a network plugin gives an address of the node's own pods, by its own IPAM. Cilium's
cluster-pool and Calico's IPAM take no notice of spec.podCIDRs (projectcalico/calico#2592). With each:
what to set instead, and what shows it."""

NODE_PORTS: Mapping[int, str] = {
    # IANA, Service Name and Transport Protocol Port Number Registry.
    22: "SSH server",
    53: "DNS server",
    111: "rpcbind",
    179: "BGP daemon (Calico, Cilium, kube-router, MetalLB)",
    **dict.fromkeys((2375, 2376), "Docker"),
    # kubernetes/ingress-nginx, pkg/flags: healthz-port, in the host's network.
    10254: "ingress controller (health checks)",
    # kubernetes.io/docs/reference/networking/ports-and-protocols; 2381, 2382: k3s docs, "Local Ports".
    **dict.fromkeys((2379, 2380, 2381, 2382), "etcd"),
    6443: "API server",
    10257: "controller manager",
    10259: "scheduler",
    # kubernetes/kubernetes, pkg/cluster/ports; 10255: KubeletConfiguration, readOnlyPort.
    **dict.fromkeys((10248, 10250, 10255), "kubelet"),
    **dict.fromkeys((10249, 10256), "kube-proxy"),
    # kubernetes/cloud-provider, options/webhook.go (10260); OpenShift's registry, below (10263).
    **dict.fromkeys((10258, 10260), "cloud controller manager"),
    10263: "cloud node manager",
    # kubernetes/website, examples/admin/konnectivity.
    **dict.fromkeys((8132, 8133, 8134), "konnectivity server"),
    # k3s docs, installation/requirements; RKE2 docs, install/requirements.
    6444: "API server's load balancer (k3s, RKE2)",
    9345: "supervisor (k3s, RKE2)",
    10010: "container runtime",
    # openshift/enhancements, dev-guide/host-port-registry.md.
    9537: "CRI-O",
    **dict.fromkeys((9977, 9978, 9979), "etcd (OpenShift)"),
    **dict.fromkeys((9258, 9259), "cloud controller manager (OpenShift)"),
    **dict.fromkeys((8797, 22623, 22624), "machine configuration (OpenShift)"),
    **dict.fromkeys((10357, 11443, 17697), "control plane (OpenShift)"),
    # docs.cilium.io, operations/system_requirements, "Firewall Rules"; 9965: its chart, hubble.metrics.port.
    **dict.fromkeys((4240, 4244, 4245, 4250, 4251), "Cilium"),
    **dict.fromkeys((9878, 9879, 9890, 9891, 9893, 9901, 9962, 9963, 9964, 9965), "Cilium"),
    # docs.tigera.io, reference/felix/configuration (9091, 9099); projectcalico/calico, typha/pkg/config (9093
    # and 9098); RKE2 docs, install/requirements (5473).
    **dict.fromkeys((5473, 9091, 9093, 9098, 9099), "Calico"),
    # antrea.io/docs, network-requirements.
    **dict.fromkeys((10349, 10350, 10351), "Antrea"),
    # ovn-org/ovn-kubernetes, dist/images/ovnkube.sh; from 9102 on: OpenShift's registry, above.
    **dict.fromkeys((6641, 6642, 6643, 6644, 9310, 9409, 9410, 9476), "OVN-Kubernetes"),
    **dict.fromkeys((9102, 9103, 9641, 9642, 9643, 9644, 29101, 29102, 29103), "OVN-Kubernetes"),
    # weaveworks/weave: site/faq.md (6781, 6783), prog/weave-kube (6782, 6784).
    **dict.fromkeys((6781, 6782, 6783, 6784), "Weave Net"),
    # kube-router.io/docs/health; its routing controller and amazon-vpc-cni-k8s, cmd/aws-k8s-agent (50051).
    20244: "kube-router",
    50051: "network daemon (kube-router, AWS VPC CNI)",
    # amazon-vpc-cni-k8s, README: DISABLE_METRICS, INTROSPECTION_BIND_ADDRESS.
    **dict.fromkeys((61678, 61679), "AWS VPC CNI"),
    # metallb/metallb, config/controllers/speaker.yaml; frr-metrics: 7473 up to 0.15, 9121 since (config/frr).
    **dict.fromkeys((7472, 7473, 7946, 9121), "MetalLB"),
    # kube-vip/kube-vip, cmd: prometheusHTTPServer.
    2112: "kube-vip",
    # kubernetes/kubernetes, cluster/addons/dns/nodelocaldns (9253); kubernetes/dns, cmd/node-cache (9353).
    **dict.fromkeys((9253, 9353), "NodeLocal DNSCache"),
    # github.com/prometheus/prometheus/wiki/Default-port-allocations.
    9100: "node exporter",
    # kubernetes/node-problem-detector, cmd/options.
    **dict.fromkeys((20256, 20257), "node problem detector"),
    # daemonset/base: agent and relay.
    **dict.fromkeys((9467, 9468), "nodeagent"),
}
"""Ports that the daemons of a node bind, each with what listens there by default, and the source above it.

If a relay has one of them first, the program does not start (bind(2): EADDRINUSE), and anyone who can create
a Service could cause that. Ports that load balancers commonly publish are left out, even if a daemon has one:
80, 443, 3306, 5000, 5001, 6060, 8080, 9000, 9001, 9090, 9443 and 10443. Those, and other programs' ports, are
recognized by what already listens."""
