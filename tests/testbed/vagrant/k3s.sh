#!/bin/bash
# k3s on a machine: `k3s.sh server` on cp, `k3s.sh agent` on a node.
#
#   NODE_NAME=node1 NODE_ADDRESS=192.168.56.21 KUBE_PROXY_MODE=nftables k3s.sh agent
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/common.sh"

role=${1:-}
[[ $role == server || $role == agent ]] || fail "which role? usage: k3s.sh server|agent"
: "${NODE_NAME:?the name of this node}" "${NODE_ADDRESS:?its address in the private network}"
KUBE_PROXY_MODE=${KUBE_PROXY_MODE:-nftables}
[[ $KUBE_PROXY_MODE =~ ^(nftables|iptables|ipvs)$ ]] || fail "KUBE_PROXY_MODE is nftables, iptables or ipvs, not $KUBE_PROXY_MODE"
architecture=$(dpkg --print-architecture)
[[ $architecture == amd64 ]] || fail "the pinned k3s is for amd64, and this is $architecture"
interface=$(ip -json address show to "$NODE_ADDRESS" | grep -oP '"ifname":"\K[^"]+' || :)
[[ -n $interface ]] || fail "no interface has the address $NODE_ADDRESS"

# nftables and iptables: for looking, and for the acceptance steps, which ask a node what is left on it.
install_packages ca-certificates conntrack curl iptables nftables tcpdump
use_lb_as_dns

# The certificate authority and the images are made on cp, which serves them to the nodes.
images=/var/lib/rancher/k3s/agent/images
mkdir -p "$images" /etc/rancher/k3s /usr/local/share/ca-certificates
if [[ $role == server ]]; then
    cp /srv/testbed/ca.crt /usr/local/share/ca-certificates/testbed.crt
    cp /srv/testbed/*.tar "$images/"
else
    from=http://$CP_ADDRESS:8000
    curl -q --fail --silent --show-error --output /usr/local/share/ca-certificates/testbed.crt "$from/ca.crt"
    curl -q --fail --silent --show-error "$from/SHA256SUMS" | while read -r sha256 file; do
        fetch "$from/$file" "$sha256" "$images/$file"
    done
fi
update-ca-certificates >/dev/null

# The container runtime pulls with a certificate store of its own.
cat >/etc/rancher/k3s/registries.yaml <<CONF
configs:
  registry.example.test:
    tls:
      ca_file: /usr/local/share/ca-certificates/testbed.crt
CONF

config=/etc/rancher/k3s/config.yaml
cat >$config <<CONF
node-name: $NODE_NAME
node-ip: $NODE_ADDRESS
flannel-iface: $interface
token: $K3S_TOKEN
kube-proxy-arg:
  - proxy-mode=$KUBE_PROXY_MODE
CONF
if [[ $role == server ]]; then
    # The networks of tests/testbed: its manifests are applied as they are. The DNS Service keeps out of their way.
    cat >>$config <<CONF
cluster-cidr: 10.244.0.0/16
service-cidr: 10.96.0.0/16
cluster-dns: 10.96.0.2
advertise-address: $NODE_ADDRESS
tls-san:
  - $NODE_ADDRESS
disable:
  - traefik
  - servicelb
  - metrics-server
  - local-storage
node-taint:
  - node-role.kubernetes.io/control-plane=true:NoSchedule
CONF
    unit=k3s.service
else
    echo "server: https://$CP_ADDRESS:6443" >>$config
    unit=k3s-agent.service
fi
chmod 600 $config

# The + of a version is written %2B in a path.
fetch "$K3S_URL/${K3S_VERSION//+/%2B}/k3s" "$K3S_SHA256" /usr/local/bin/k3s
chmod 755 /usr/local/bin/k3s
install_unit "$unit"
systemctl restart "$unit"
