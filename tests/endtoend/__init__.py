"""The commands on a node of the little world, judged by what its users see and by what is left behind."""
