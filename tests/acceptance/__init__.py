"""What nodeagent is for, as steps that any cluster can be put to: before, install, after, upgrade, uninstall.

`python -m tests.acceptance cluster` runs them by a kubeconfig and a command line that leads to each node
(docs/development.md).
"""
