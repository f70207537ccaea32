"""The Kubernetes API as a source: connect, then read the cluster once or keep it up to date.

- connection: who and where, by the official client; raw bytes over HTTP
- resources: what is read, and how it becomes a Snapshot
- listing: a collection in pages
- reflector: one collection kept up to date; holding: what is known of it
- discovery: which optional kinds there are; discovering: looks now and then; optional_set: their watches
- cluster: all of them together, for the daemon; once: without watching, for single commands
- events: what an administrator must know, told on the object itself
"""
