"""The hosts file: the managed block as bytes, and its safe way into a real file."""
