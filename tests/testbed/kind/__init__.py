"""The testbed of containers: the acceptance steps on a cluster that kind makes (docs/testbed.md)."""
