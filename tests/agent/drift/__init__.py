"""Tests of the drift watchers against a real kernel."""
