#!/bin/bash
# The acceptance steps on a cluster of containers, which kind makes for them and which is removed in the end.
#
#   acceptance.sh PYTHON
#
# KEEP=1 leaves the cluster. NODE_IMAGE=kindest/node:v1.36.1 chooses a version of Kubernetes; else kind does.
set -euo pipefail

cd "$(dirname "$0")/../../.."
python=${1:?usage: acceptance.sh PYTHON}

cluster=nodeagent-acceptance
lb=$cluster-lb
export KIND_EXPERIMENTAL_DOCKER_NETWORK=$cluster # a network of its own: the load balancer's address must be known
export LB_ADDRESS=172.30.99.10
subnet=172.30.99.0/24
dynamic=172.30.99.128/25

fail() {
    echo "acceptance-kind: $*" >&2
    exit 1
}

missing=()
for program in docker kind kubectl openssl; do
    command -v "$program" >/dev/null || missing+=("$program")
done
((${#missing[@]} == 0)) || fail "not installed: ${missing[*]}; nothing was made"
docker info >/dev/null 2>&1 || fail "Docker's daemon does not answer (docker info); nothing was made"
existing=$(kind get clusters 2>/dev/null)
! grep -qx "$cluster" <<<"$existing" \
    || fail "the cluster $cluster exists already; nothing was made. Remove it: kind delete cluster --name $cluster"

work=$(mktemp --directory)
export KUBECONFIG=$work/kubeconfig

finish() {
    local status=$?
    set +e
    if ((status != 0)) && [[ -e $KUBECONFIG ]]; then
        echo "acceptance-kind: failed; the pods, and what the agents said last:" >&2
        kubectl get pods --all-namespaces --output wide >&2
        kubectl --namespace nodeagent logs --selector app.kubernetes.io/name=nodeagent --all-containers --prefix \
            --tail 40 >&2
    fi
    if [[ -n ${KEEP:-} ]]; then
        echo "left: kubeconfig $KUBECONFIG, cluster $cluster, container $lb, network $cluster" >&2
        exit "$status"
    fi
    kind delete cluster --quiet --name "$cluster"
    docker rm --force "$lb" >/dev/null 2>&1
    docker network rm "$cluster" >/dev/null 2>&1
    rm -rf -- "$work"
    exit "$status"
}
trap finish EXIT

# Images: the agent's, and the testbed's programs with the testbed's authority.
# Usage: build TAG DOCKERFILE CONTEXT [OPTION...]
build() {
    docker buildx build --quiet --load --provenance=false --tag "$1" --file "$2" "${@:4}" "$3" >/dev/null
}
base=$(sed -n 's/^ARG BASE=//p' daemonset/image/Dockerfile)
"$python" -m tests.testbed.vagrant.render certificates "$work/certificates"
mkdir "$work/context"
cp "$work/certificates/ca.crt" tests/testbed/vagrant/lb_address.py "$work/context/"
build nodeagent:vagrant daemonset/image/Dockerfile .
build localhost/testbed:1 tests/testbed/vagrant/image/Dockerfile "$work/context" --build-arg "BASE=$base"
# What is pulled has a content of its own: a kubelet that has pulled an image by one name takes no other name for
# it, however the image came to the node (since Kubernetes 1.35).
build localhost/pulled:1 tests/testbed/vagrant/image/Dockerfile "$work/context" --build-arg "BASE=$base" --label pulled=1

docker network create --subnet "$subnet" --ip-range "$dynamic" "$cluster" >/dev/null
kind create cluster --name "$cluster" --config tests/testbed/kind/cluster.yaml --wait 5m \
    ${NODE_IMAGE:+--image "$NODE_IMAGE"}
kind load docker-image --name "$cluster" nodeagent:vagrant localhost/testbed:1
kind load docker-image --name "$cluster" --nodes "$cluster-control-plane" localhost/pulled:1

# Every node trusts the authority: curl at once, containerd when it starts again.
mapfile -t nodes < <(kubectl get nodes --output name | sed 's|^node/||')
workers=()
for node in "${nodes[@]}"; do
    docker cp --quiet "$work/certificates/ca.crt" "$node:/usr/local/share/ca-certificates/testbed.crt"
    docker exec "$node" update-ca-certificates
    docker exec "$node" systemctl restart containerd
    [[ $node == *-control-plane ]] || workers+=("$node")
done
# As k3s labels it: the registry runs there.
kubectl label --overwrite node "$cluster-control-plane" node-role.kubernetes.io/control-plane=true

# The load balancer. Docker's DNS, which the nodes and CoreDNS ask, knows the testbed's names as this container's.
addresses=()
for node in "${workers[@]}"; do
    address=$(docker inspect --format "{{(index .NetworkSettings.Networks \"$cluster\").IPAddress}}" "$node")
    addresses+=("$node=$address")
done
"$python" -m tests.testbed.kind.render haproxy "${addresses[@]}" >"$work/haproxy.cfg"
aliases=()
while read -r _ name; do
    aliases+=(--network-alias "$name")
done < <("$python" -m tests.testbed.vagrant.render names)
docker create --quiet --name "$lb" --network "$cluster" --ip "$LB_ADDRESS" "${aliases[@]}" \
    --sysctl net.ipv4.ip_unprivileged_port_start=0 --entrypoint haproxy \
    nodeagent:vagrant -W -db -f /etc/haproxy/haproxy.cfg >/dev/null
docker cp --quiet "$work/haproxy.cfg" "$lb:/etc/haproxy/haproxy.cfg"
docker start "$lb" >/dev/null

"$python" -m tests.testbed.kind.render objects "$work/certificates" | kubectl apply -f -
kubectl --namespace registry rollout status deployment/registry --timeout=300s
kubectl --namespace ingress-nginx rollout status deployment/ingress-nginx --timeout=300s
kubectl --namespace ingress-nginx wait service/ingress-nginx-controller --timeout=120s \
    --for="jsonpath={.status.loadBalancer.ingress[0].ip}=$LB_ADDRESS"
# By name no node can push yet: that is the trouble.
docker exec "$cluster-control-plane" ctr --namespace k8s.io images push --plain-http \
    10.96.0.50:5000/testbed:1 localhost/pulled:1

looked_at=()
for node in "${workers[@]}"; do
    looked_at+=(--node "$node")
done
"$python" -m tests.acceptance cluster --kubeconfig "$KUBECONFIG" --node-command 'docker exec {node}' \
    "${looked_at[@]}" --load-balancer "$LB_ADDRESS" \
    --image registry.example.test/testbed:1 --pod-image localhost/testbed:1 \
    --kustomization tests/testbed/vagrant/nodeagent
