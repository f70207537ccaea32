"""Where the planner's input comes from: the cluster's objects and this node's facts."""
