"""The Kubernetes API as a source: connect, then read the cluster once or keep it up to date.

In the order in which an object passes through:

- connection: raw bytes over HTTP; transport: what it needs; official, in_cluster: the two transports
- errors: what else a server may answer
- resources: what is read, and how it becomes a Snapshot
- list_watch: one collection in pages, and the events of its watch
- reflector: list, then watch, over and over; store: what is known; informers: both together
- discovery: which optional kinds exist
- cluster: all of them together, kept up to date, or once

In addition: events (posted on objects), questions (version, pods, DNS), workloads (nodeagent's own).
"""
