#!/bin/sh
# Rules and addresses of others come and go on a living node: what nodeagent could have made is looked for.
sha256sum </etc/hosts
stat --format='%A %u:%g' /etc/hosts
echo ---
ip -oneline address | grep -oE '(169\.254\.66\.|fd68:6169:7270:)[^ ]*' || :
ip -oneline link show hairpin0 2>/dev/null || :
nft list tables 2>/dev/null | grep -w nodeagent || :
for family in ip ip6; do
    "${family}tables-nft-save" 2>/dev/null | grep NODEAGENT || :
    # This lists the legacy tables that are there and makes none.
    "${family}tables-legacy-save" 2>/dev/null | grep NODEAGENT || :
done
ls -A /run/nodeagent 2>/dev/null || :
