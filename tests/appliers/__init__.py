"""The appliers, tested on the real kernel."""
