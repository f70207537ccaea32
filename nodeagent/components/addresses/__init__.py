"""The relay addresses on this node: a dummy device, or `lo` where the kernel has none."""
