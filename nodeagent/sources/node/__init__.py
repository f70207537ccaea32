"""Facts about this node that no component owns: its names, its sockets, its path to the API server."""
