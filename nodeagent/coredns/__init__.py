"""The cluster half: names for pods, answered by CoreDNS. See docs/decisions/0015-coredns.md.

- corefile: a Corefile as CoreDNS reads it, and our block in it; pure
- naming, answers: which names are answered, and by which lines; pure
- editing: what of the ConfigMaps is to change; pure
- config_maps, lease: how they are read and written, and by whom
- controller: all of it together, kept up to date
"""
