#!/bin/bash
# The machine `lb`: HAProxy as the cloud's load balancer, which sends PROXY to the nodes; and the network's DNS server.
#
#   NODES=2 lb.sh
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/common.sh"

: "${NODES:?how many nodes there are}"

install_packages dnsmasq-base haproxy python3

mkdir -p /etc/testbed
cd "$repository"
python3 -m tests.testbed.vagrant.render names >/etc/testbed/names
cat >/etc/testbed/dnsmasq.conf <<CONF
# The testbed's names from a file; everything else as this machine resolves it.
bind-interfaces
listen-address=$LB_ADDRESS
except-interface=lo
no-hosts
addn-hosts=/etc/testbed/names
local=/example.test/
log-queries
CONF
install_unit testbed-dns.service

python3 -m tests.testbed.vagrant.render haproxy "$NODES" >/etc/haproxy/haproxy.cfg.new
haproxy -c -q -f /etc/haproxy/haproxy.cfg.new || fail "HAProxy refuses its configuration: /etc/haproxy/haproxy.cfg.new"
mv /etc/haproxy/haproxy.cfg.new /etc/haproxy/haproxy.cfg
systemctl enable --quiet haproxy

systemctl restart testbed-dns haproxy
