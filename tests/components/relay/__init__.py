"""The relay, on a real HAProxy in namespaces of its own."""
