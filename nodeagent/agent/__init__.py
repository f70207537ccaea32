"""A pass over the node: facts, comparison of what stands with what shall stand, and making it so."""
