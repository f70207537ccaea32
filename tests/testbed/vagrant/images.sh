#!/bin/bash
# On cp, before k3s: the images, built from this working tree and served with their digests. Needs the internet.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/common.sh"

install_packages buildah ca-certificates
cd "$repository"

# The base is that of the agent's image: one place for its tag. BASE is another one.
base=${BASE:-$(sed -n 's/^ARG BASE=//p' daemonset/image/Dockerfile)}

# Usage: build TAG DOCKERFILE CONTEXT [OPTION...]
build() {
    local tag=$1 file=$2 context=$3
    shift 3
    buildah build --quiet --layers --isolation chroot --build-arg "BASE=$base" --file "$file" --tag "$tag" "$@" "$context" >/dev/null
}

# Usage: save TAG FILE
save() {
    rm -f "/srv/testbed/$2"
    buildah push --quiet "$1" "docker-archive:/srv/testbed/$2:$1"
}

build docker.io/library/nodeagent:vagrant daemonset/image/Dockerfile . --ignorefile daemonset/image/Dockerfile.dockerignore
save docker.io/library/nodeagent:vagrant nodeagent.tar

context=$(mktemp --directory)
trap 'rm -rf -- "$context"' EXIT
cp /srv/testbed/ca.crt tests/testbed/vagrant/lb_address.py "$context/"
build localhost/testbed:1 tests/testbed/vagrant/image/Dockerfile "$context"
save localhost/testbed:1 testbed.tar
# What is pulled has a content of its own: a kubelet that has pulled an image by one name takes no other name for
# it, however the image came to the node (since Kubernetes 1.35).
build localhost/pulled:1 tests/testbed/vagrant/image/Dockerfile "$context" --label pulled=1

(cd /srv/testbed && sha256sum -- *.tar >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
