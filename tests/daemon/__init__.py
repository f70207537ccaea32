"""`nodeagent run` as a whole: the real program on a node of the testbed, a simulated API over HTTP."""
