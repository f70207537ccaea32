"""What nodeagent is for, as steps that any cluster can be put to (docs/development.md)."""
