"""Who owns an address, what this node can serve, and the plan of its relay. Pure."""
