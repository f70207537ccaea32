"""The controller for CoreDNS: hostnames for pods. See docs/decisions/0015-coredns.md."""
