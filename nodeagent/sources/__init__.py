"""The sources of the planner's input: the cluster's objects and this node's facts."""
