"""The testbed of virtual machines: what the Vagrantfile provisions its machines with (docs/testbed.md)."""
