"""The daemon: its loop, its triggers, what it reports about itself."""
