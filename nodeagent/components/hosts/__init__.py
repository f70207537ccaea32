"""The hosts file: `block` is pure, `file` touches the disk, `component` joins them."""
