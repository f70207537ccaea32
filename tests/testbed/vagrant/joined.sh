#!/bin/bash
# On a node, at the end: waits until it is ready, and says so.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/common.sh"

: "${NODE_NAME:?the name of this node}"
own=/var/lib/rancher/k3s/agent/kubelet.kubeconfig
deadline=$((SECONDS + 300 * PATIENCE))
until k3s kubectl --kubeconfig "$own" wait --for=condition=Ready "node/$NODE_NAME" --timeout=10s 2>/dev/null; do
    ((SECONDS < deadline)) || fail "$NODE_NAME did not become ready: journalctl -u k3s-agent"
    sleep 2
done
