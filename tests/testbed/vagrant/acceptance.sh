#!/bin/bash
# On the machine where `vagrant up` was run: the acceptance steps on the cluster of virtual machines.
# nodeagent is uninstalled before and after; `vagrant provision cp --provision-with nodeagent.sh` installs it again.
#
#   NODES=2 acceptance.sh PYTHON
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
# shellcheck source-path=SCRIPTDIR source=settings.sh
source "$here/settings.sh"
python=${1:?usage: acceptance.sh PYTHON}

mkdir -p .vagrant
vagrant ssh-config >.vagrant/ssh-config
# k3s writes it for the machine itself; its certificate bears the other address, too.
rm -f .vagrant/kubeconfig # an older one would keep its mode
(umask 077 && vagrant ssh cp --command 'sudo cat /etc/rancher/k3s/k3s.yaml' \
    | sed "s/127\.0\.0\.1/$CP_ADDRESS/" >.vagrant/kubeconfig)

nodes=()
for ((number = 1; number <= ${NODES:-2}; number++)); do
    nodes+=(--node "node$number")
done
exec "$python" -m tests.acceptance cluster --kubeconfig .vagrant/kubeconfig \
    --node-command 'ssh -F .vagrant/ssh-config -o LogLevel=ERROR {node} sudo -n -- {command}' \
    "${nodes[@]}" --load-balancer "$LB_ADDRESS" --image registry.example.test/testbed:1 \
    --pod-image localhost/testbed:1 --kustomization tests/testbed/vagrant/nodeagent
