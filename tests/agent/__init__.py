"""The daemon: its loop, its triggers, what it tells of itself."""
