"""Drift: notices at once if another program changes what nodeagent put on the node. Repairs nothing itself.

One watcher per component: `hosts_file.HostsFileWatcher`, `addresses.AddressWatcher`,
`dnat.NftablesWatcher` or `dnat.XtablesWatcher`, `relay.RelayWatcher`. All wait for events of the kernel; the
one for xtables, about which the kernel reports least, also checks at long intervals.
`runtime.repair_conflicts` slows repairs down if another program keeps reverting them.
"""
