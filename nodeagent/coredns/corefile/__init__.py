"""Corefiles: read as CoreDNS reads them, changed without touching a byte of anybody else's. Pure."""
