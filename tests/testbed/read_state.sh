#!/bin/sh
# Prints what of a node nodeagent changes, each part followed by a mark.
set -e
end() { printf '\037\n'; }
stat '--format=%A %u:%g %F' /etc/hosts
end
nft --stateless list ruleset
end
for program in iptables-nft iptables-legacy ip6tables-nft ip6tables-legacy; do "$program-save"; done
end
ip -json address
end
ip route show table all
ip -6 route show table all
end
# The lock file of programs that take it once stays.
ls -A --ignore=xtables.lock /run
end
