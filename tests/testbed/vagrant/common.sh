# What the provisioning scripts share; they source it. Run as root on Debian 12.
# shellcheck shell=bash
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../../.." && pwd)
readonly here repository

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# shellcheck source-path=SCRIPTDIR source=settings.sh
source "$here/settings.sh"

# Each wait of the scripts takes at most so many times what it takes on an ordinary machine.
PATIENCE=${PATIENCE:-1}

((EUID == 0)) || fail "this provisions a machine: run it as root, on a machine that may be changed"

# Usage: install_packages PACKAGE...
install_packages() {
    "$repository/scripts/install-packages" <(printf '%s\n' "$@")
}

# Fetches a file unless it is there completely already; what does not match its digest is never left behind.
# Usage: fetch URL SHA256 FILE
fetch() {
    local url=$1 sha256=$2 file=$3
    [[ $sha256 =~ ^[0-9a-f]{64}$ ]] || fail "no SHA-256 is pinned for $url: write it into $here/testbed.env"
    if sha256sum --check --status <<<"$sha256  $file" 2>/dev/null; then
        return
    fi
    local partial=$file.partial
    # -q: no curlrc. Redirects are followed, but only to where the certificate is checked, too.
    curl -q --fail --silent --show-error --location --proto-redir =https --retry 3 --output "$partial" "$url" \
        || fail "$url could not be fetched"
    if ! sha256sum --check --status <<<"$sha256  $partial"; then
        local found
        found=$(sha256sum "$partial")
        rm -f "$partial"
        fail "$url: expected sha256 $sha256, found ${found%% *}; nothing was installed"
    fi
    mv "$partial" "$file"
}

# Usage: install_unit NAME.service
install_unit() {
    # Addresses are filled in; a unit holds no other variable of this form.
    sed -e "s/@LB_ADDRESS@/$LB_ADDRESS/g" -e "s/@CP_ADDRESS@/$CP_ADDRESS/g" "$here/units/$1" >"/etc/systemd/system/$1"
    systemctl daemon-reload
    systemctl enable --quiet "$1"
}

# The names of the testbed are known to the machine lb alone; it asks the machine's own resolver for all others.
use_lb_as_dns() {
    mkdir -p /etc/dhcp/dhclient-enter-hooks.d
    echo 'make_resolv_conf() { :; } # the name server is the testbed'"'"'s' >/etc/dhcp/dhclient-enter-hooks.d/testbed
    # A link (to systemd-resolved's file, say) is replaced, not followed.
    echo "nameserver $LB_ADDRESS" >/etc/resolv.conf.testbed
    mv -f /etc/resolv.conf.testbed /etc/resolv.conf
}
