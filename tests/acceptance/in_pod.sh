#!/bin/sh
# Standard output and standard error apart: a container's log has them mixed. The kubelet reads the last file,
# up to 4 KiB.
"$@" >/tmp/stdout 2>/tmp/stderr
code=$?
{ cat /tmp/stdout; printf '\n--- stderr ---\n'; cat /tmp/stderr; } >/dev/termination-log
exit "$code"
