"""Drift: notices at once when another program changes what nodeagent put on the node. Repairs nothing itself.

One watcher per component: `hosts_file.HostsFileWatcher`, `addresses.AddressWatcher`,
`dnat.NftablesWatcher` or `dnat.XtablesWatcher`, `relay.RelayWatcher`. All wait for events of the kernel; the
one for xtables, of which the kernel tells least, also looks at long intervals. `retries.RepairConflicts`
slows repairs down when another program undoes them over and over.
"""
