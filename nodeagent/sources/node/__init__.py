"""Facts about this node that no applier owns: its names, its sockets, its way to the API server."""
