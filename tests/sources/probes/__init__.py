"""Probes against servers that behave as the tests ask."""
