"""Connections that are made to find out how they end: bounded in time, and nothing is left behind."""
