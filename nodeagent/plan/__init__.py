"""From Snapshot, Facts and Config to the desired state, with its reasons. Pure; begins at planner.py."""
