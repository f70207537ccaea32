"""Probes against servers that behave as they are told to."""
