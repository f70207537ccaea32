"""The cluster half: names for pods, answered by CoreDNS. See docs/decisions/0015-coredns.md.

- corefile: a Corefile as CoreDNS reads it, and our block in it; pure
- naming: which names are answered, as far as there is room; pure
- editing: what of the ConfigMaps is to change, and by which way; pure
- config_maps, lease: how they are read and written, and by whom
- reconciler: one pass; once: the same without a controller; controller: all of it, kept up to date
"""
