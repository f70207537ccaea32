"""Which of a node's agents writes: each registers, the newest gets the node's lock."""
