#!/bin/bash
# On a node, at the end: waits until it is ready and, with nodeagent, until it serves this node.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/common.sh"

: "${NODE_NAME:?the name of this node}"
own=/var/lib/rancher/k3s/agent/kubelet.kubeconfig
deadline=$((SECONDS + 300 * PATIENCE))
until k3s kubectl --kubeconfig "$own" wait --for=condition=Ready "node/$NODE_NAME" --timeout=10s 2>/dev/null; do
    ((SECONDS < deadline)) || fail "$NODE_NAME did not become ready: journalctl -u k3s-agent"
    sleep 2
done

# The ingress controller waits for the first node. nodeagent writes its block last: when its relay serves the name.
if [[ ${NODEAGENT:-1} == 1 ]]; then
    until grep -q 'BEGIN nodeagent' /etc/hosts \
        && curl -q --fail --silent --output /dev/null --max-time "$((10 * PATIENCE))" http://site.example.test/; do
        ((SECONDS < deadline)) || fail "http://site.example.test/ is not served: on cp, sudo k3s kubectl get pods -A"
        sleep 2
    done
fi
