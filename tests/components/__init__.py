"""The components, tested on the real kernel."""
