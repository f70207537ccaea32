"""The commands on a node of the testbed, judged by what its users see and by what is left behind."""
