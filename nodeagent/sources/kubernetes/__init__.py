"""The Kubernetes API as a source: connect, then read the cluster, once or again and again.

An object passes through connection (with credentials and errors), listing (pages, and lines of a watch) and
reflector (list and watch, over and over) to cluster; resources says what is read, and how it becomes a
Snapshot. In addition: single_requests (what the server has, the cluster once, own workloads).
"""
