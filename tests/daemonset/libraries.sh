#!/bin/sh
# ldd begins the list of each file with its name.
find /opt/nodeagent /usr/sbin /usr/lib/*/xtables -type f \( -name '*.so*' -o -perm -100 \) \
    -exec ldd {} + 2>/dev/null |
    awk '/^[^	]/ { file = $0 } /not found/ { print file, $0 } END { exit NR == 0 }'
