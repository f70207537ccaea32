"""How the cluster and the node are read: from manifests, /proc, kubeconfigs."""
