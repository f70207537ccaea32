"""The testbed: a cluster's network made of real programs in network namespaces.

`tests.testbed.world.World` is the way in. Nothing is made in the machine's own network namespace.
"""
