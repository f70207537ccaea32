"""Appliers: each reads what really stands in its part of the node, compares, and changes only that."""
