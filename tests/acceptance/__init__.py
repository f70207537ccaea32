"""What nodeagent is for, as steps that any cluster can be put to: before, install, after, upgrade, uninstall.

`python -m tests.acceptance namespaces` runs them in the testbed, `python -m tests.acceptance cluster`
on a real cluster by kubeconfig and ssh (docs/testbed.md).
"""
