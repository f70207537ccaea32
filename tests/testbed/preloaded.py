"""What nodeagent's commands import, for the fork server to have it: forked.py."""

import gc
import pkgutil
from importlib import import_module

import nodeagent

# Imported when needed; without the official client, which few starts need and which would slow each fork.
_IMPORTED_LATER = ("iptc", "prometheus_client", "pyroute2", "watchdog.observers.inotify_c")

for _module in pkgutil.walk_packages(nodeagent.__path__, "nodeagent."):
    if not _module.name.endswith(".__main__"):
        import_module(_module.name)
for _name in _IMPORTED_LATER:
    import_module(_name)
# The collections of what is forked spare it.
gc.freeze()
