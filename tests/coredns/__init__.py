"""The cluster half: names for pods, by CoreDNS."""
