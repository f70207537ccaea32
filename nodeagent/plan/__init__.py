"""From a Snapshot, the node's Facts and the Config to the desired state, each part with its reason. Pure.

Nothing here touches a file, a socket or the clock. Start reading at planner.py.
"""
