"""The testbed of virtual machines: what its machines are provisioned with (docs/development.md)."""
