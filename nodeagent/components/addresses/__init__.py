"""The relay addresses on this node: on a dummy device, or on `lo` if the kernel has none."""
