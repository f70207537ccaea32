"""Situations of people, a folder each: README.md says how to add one."""
