#!/bin/bash
# Makes the pinned box of Debian's packages, for libvirt, and adds it to Vagrant: where Vagrant's catalog is out of reach,
# or what the box holds is to be known. As root.
#
#   box.sh [OPTION...]    for mmdebstrap: --include=PACKAGE,... or --customize-hook=COMMAND, say
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=settings.sh
source "$here/settings.sh"
# Where Debian's package and Vagrant's own have it.
key=$(find /usr/share/rubygems-integration /opt/vagrant -path '*/keys/vagrant.pub' -print -quit 2>/dev/null || :)
[[ -n $key ]] || { echo "box.sh: Vagrant and its public key vagrant.pub are not installed" >&2; exit 1; }

work=$(mktemp --directory --tmpdir=/var/tmp)
trap 'rm -rf -- "$work"' EXIT
mkdir "$work/files" "$work/box"

# Interfaces are called eth0, eth1, ... as in the box of the catalog; Vagrant configures all but the first.
mkdir -p "$work"/files/{etc/network,etc/sudoers.d}
printf 'source /etc/network/interfaces.d/*\n\nauto lo eth0\niface lo inet loopback\niface eth0 inet dhcp\n' \
    >"$work/files/etc/network/interfaces"
echo 'vagrant ALL=(ALL) NOPASSWD: ALL' >"$work/files/etc/sudoers.d/vagrant"
echo 'LABEL=root / ext4 errors=remount-ro 0 1' >"$work/files/etc/fstab"
chmod -R u=rwX,go=rX "$work/files"

# shellcheck disable=SC2016 # mmdebstrap's shell knows $1, the root
mmdebstrap --include=linux-image-cloud-amd64,dbus,openssh-server,rsync,sudo \
    "--customize-hook=copy-in '$work/files/etc' /" \
    '--customize-hook=echo debian >"$1/etc/hostname"; echo "127.0.0.1 localhost" >"$1/etc/hosts"' \
    '--customize-hook=chroot "$1" useradd --create-home --shell /bin/bash vagrant' \
    '--customize-hook=install -d -m 700 "$1/home/vagrant/.ssh"' \
    "--customize-hook=upload '$key' /home/vagrant/.ssh/authorized_keys" \
    '--customize-hook=chroot "$1" chown -R vagrant: /home/vagrant/.ssh' \
    "$@" bookworm "$work/root"

# The boot loader is in front of the first partition, and follows Debian's links to the newest kernel.
cat >"$work/grub.cfg" <<'CONF'
linux (hd0,msdos1)/vmlinuz root=/dev/vda1 ro quiet net.ifnames=0 console=tty0 console=ttyS0
initrd (hd0,msdos1)/initrd.img
boot
CONF
grub-mkimage --format=i386-pc --prefix=/ --config="$work/grub.cfg" --output="$work/core.img" \
    biosdisk boot ext2 linux part_msdos
disk=$work/disk
truncate --size=20G "$disk"
sfdisk --quiet "$disk" <<<'2048,,L,*'
dd if=/usr/lib/grub/i386-pc/boot.img of="$disk" bs=440 count=1 conv=notrunc status=none
dd if="$work/core.img" of="$disk" seek=1 conv=notrunc status=none
mke2fs -q -t ext4 -L root -d "$work/root" -E offset=1048576 "$disk" "$((20 * 1024 - 1))M"

qemu-img convert -O qcow2 "$disk" "$work/box/box.img"
echo '{"provider": "libvirt", "format": "qcow2", "virtual_size": 20}' >"$work/box/metadata.json"
echo 'Vagrant.configure("2") {}' >"$work/box/Vagrantfile"
tar --create --directory "$work/box" --file "$work/libvirt.box" metadata.json Vagrantfile box.img
cat >"$work/catalog.json" <<JSON
{"name": "$BOX", "versions": [{"version": "$BOX_VERSION", "providers": [{"name": "libvirt", "url": "file://$work/libvirt.box"}]}]}
JSON
vagrant box add --force "$work/catalog.json"
