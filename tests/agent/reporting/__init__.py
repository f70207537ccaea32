"""What the agent reports about itself: metrics, health, and the pages over real sockets."""
