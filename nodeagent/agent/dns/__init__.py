"""DNS verification of hostnames in the background: when each is looked up, and by which threads."""
