"""Which agent writes on a node."""
