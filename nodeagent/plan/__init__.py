"""Pure: from a Snapshot, the node's Facts and the Config to what shall stand, each with its reason.

Nothing here touches a file, a socket or the clock. Start reading at planner.py.
"""
