"""The Kubernetes API as a source: connect, then read the cluster once or keep it up to date.

In the order in which an object passes through:

- credentials: where to, and as whom; connection: requests, and the raw bytes of their answers
- errors: what else a server may answer
- resources: what is read, and how it becomes a Snapshot
- listing: one collection in pages; watch_events: the lines of its watch
- reflector: list, then watch, over and over; store: what is known
- discovery: which optional kinds exist
- cluster: all of them together, kept up to date, or once

In addition: events (posted on objects), questions (version, pods, DNS), workloads (nodeagent's own), pod_exec
(programs in pods).
"""
