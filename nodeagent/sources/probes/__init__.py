"""Connections made to find out how they end: limited in time, and without any lasting effect."""
