#!/bin/bash
# On cp, first: the certificates, and a server from which the nodes fetch the authority's and the images.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/common.sh"

install_packages openssl python3
use_lb_as_dns

mkdir -p /srv/testbed
cd "$repository"
if [[ ! -e /etc/testbed/certificates/server.crt ]]; then
    mkdir -p /etc/testbed
    rm -rf /etc/testbed/certificates
    python3 -m tests.testbed.vagrant.render certificates /etc/testbed/certificates
fi
cp /etc/testbed/certificates/ca.crt /srv/testbed/ca.crt

install_unit testbed-files.service
systemctl restart testbed-files
