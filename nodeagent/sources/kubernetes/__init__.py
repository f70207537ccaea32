"""The Kubernetes API as a source: connect, then read the cluster once or keep it up to date.

In the order in which an object passes through:

- credentials: where to, and as whom; connection: requests, the raw bytes of their answers, programs in pods
- errors: what else a server may answer
- resources: what is read, which optional kinds exist, and how all of it becomes a Snapshot
- listing: one collection in pages, and the lines of its watch
- reflector: list, then watch, over and over, and what is known
- cluster: all of them together, kept up to date, or once

In addition: single_requests (about the server, Events, nodeagent's own workloads).
"""
