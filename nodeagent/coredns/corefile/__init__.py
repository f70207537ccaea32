"""Corefiles: read as CoreDNS reads them, changed without touching a byte of any other author. Pure."""
