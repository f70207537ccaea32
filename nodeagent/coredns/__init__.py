"""The controller for CoreDNS: hostnames for pods. See docs/decisions/0015-coredns.md.

- corefile: a Corefile as CoreDNS reads it, and nodeagent's block in it; pure
- naming: which hostnames are answered, as far as there is room; pure
- editing: what to change in which ConfigMap; pure
- config_maps, lease: how they are read and written, and by which controller
- coredns_reconciler: one pass, also without a controller
- controller: all of it, kept up to date by runtime/driver.py; reporter: what it reports
"""
