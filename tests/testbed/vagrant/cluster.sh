#!/bin/bash
# On cp, after k3s: what the cluster runs. The ingress controller, the registry, and the load balancer's controller.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/common.sh"

kubectl() {
    k3s kubectl "$@"
}

# `systemctl restart` returned when the server was ready; the API's own objects may take a moment longer,
# and the first to ask for its schema waits until it is made: when emulated, longer than the 32 s of `kubectl apply`.
deadline=$((SECONDS + 300 * PATIENCE))
until kubectl get serviceaccount default >/dev/null 2>&1 && kubectl get --raw /openapi/v2 >/dev/null 2>&1; do
    ((SECONDS < deadline)) || fail "the API server did not become ready: journalctl -u k3s"
    sleep 2
done

install_packages python3-yaml
cd "$repository"
python3 -m tests.testbed.vagrant.manifests /etc/testbed/certificates | kubectl apply -f -

# The image that is pulled by name is pushed to the Service's address: by name, this node can't reach it.
kubectl --namespace registry rollout status deployment/registry --timeout="$((300 * PATIENCE))s"
buildah push --quiet --tls-verify=false localhost/pulled:1 "docker://10.96.0.50:5000/testbed:1"
