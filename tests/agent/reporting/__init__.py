"""What the agent tells of itself: metrics, health, and the pages over real sockets."""
