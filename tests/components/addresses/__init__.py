"""Relay addresses on the real kernel, in namespaces."""
