"""A pass over the node: read facts, compare the actual with the desired state, apply the changes."""
