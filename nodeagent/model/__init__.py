"""Values that flow through nodeagent: frozen, hashable where they go into sets, with `ipaddress` objects."""
