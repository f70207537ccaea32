"""What the agent reports about itself: metrics, health, and the small HTTP server that shows them.

Nothing is imported here, so that the probe (probe.py) starts in a few milliseconds.
"""
