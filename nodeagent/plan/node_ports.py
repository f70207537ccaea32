"""Ports that the daemons of a node bind, so that no relay takes one first."""

from collections.abc import Mapping

NODE_PORTS: Mapping[int, str] = {
    # What nodes run with or without Kubernetes.
    22: "SSH server",
    53: "DNS server",
    111: "rpcbind",
    179: "BGP daemon (Calico, Cilium, kube-router, MetalLB)",
    2375: "Docker",
    2376: "Docker",
    # Kubernetes itself (kubernetes.io/docs, "Ports and Protocols"), k3s and RKE2, konnectivity.
    **dict.fromkeys((2379, 2380, 2381, 2382), "etcd"),
    6443: "API server",
    6444: "API server's load balancer (k3s, RKE2)",
    **dict.fromkeys((8132, 8133, 8134), "konnectivity server"),
    9345: "supervisor (k3s, RKE2)",
    **dict.fromkeys((4194, 10248, 10250, 10255), "kubelet"),
    **dict.fromkeys((10249, 10256), "kube-proxy"),
    10257: "controller manager",
    10258: "cloud controller manager",
    10259: "scheduler",
    # Networks.
    **dict.fromkeys((4240, 4241, 4242, 4243, 4244, 4245, 4250), "Cilium"),
    **dict.fromkeys((9878, 9879, 9890, 9891, 9893, 9901, 9962, 9963, 9964, 9965), "Cilium"),
    **dict.fromkeys((5473, 9091, 9093, 9094, 9098, 9099), "Calico"),
    **dict.fromkeys((6781, 6782, 6783, 6784), "Weave Net"),
    **dict.fromkeys((6641, 6642, 9409, 9410, 9476), "OVN-Kubernetes"),
    **dict.fromkeys((10349, 10350, 10351), "Antrea"),
    20244: "kube-router",
    50051: "network daemon (kube-router, AWS VPC CNI)",
    **dict.fromkeys((61678, 61679), "AWS VPC CNI"),
    **dict.fromkeys((7472, 7473, 7946), "MetalLB"),
    2112: "kube-vip",
    # NodeLocal DNSCache, what watches nodes, and nodeagent.
    **dict.fromkeys((9253, 9353), "NodeLocal DNSCache"),
    9100: "node exporter",
    **dict.fromkeys((20256, 20257), "node problem detector"),
    9467: "nodeagent",
    9537: "CRI-O",
}
"""Each port with what listens there by default.

Where a relay has one of them first, the program does not start (bind(2): EADDRINUSE), and anyone who can
create a Service could bring that about. The ports of other programs are told from what listens already.
`loadBalancers.allowPorts` takes single ports off the list."""
