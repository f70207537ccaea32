"""The Kubernetes API: connect, then read the cluster once (single_requests) or keep up with it (cluster)."""
