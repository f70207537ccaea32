#!/bin/bash
# On cp: nodeagent from this working tree, on every node that there is or will be. NODEAGENT=0 leaves it out.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/common.sh"

if [[ ${NODEAGENT:-1} == 0 ]]; then
    k3s kubectl delete --ignore-not-found --cascade=foreground --namespace nodeagent daemonset/nodeagent
    k3s kubectl delete --ignore-not-found --kustomize "$here/nodeagent"
else
    k3s kubectl apply --kustomize "$here/nodeagent"
fi
