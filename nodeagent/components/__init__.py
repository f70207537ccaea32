"""The components of the node: each reads its actual state and changes what differs from the desired one."""
