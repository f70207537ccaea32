#!/bin/sh
# $1 the image's root, $2 a directory for what belongs to this container, $3 ro or rw for the root, then three
# words a mount: source, place, ro or rw; then -- and the command.
set -eu
image=$1
own=$2
root_mode=$3
shift 3
mkdir -p "$own"
mount -t tmpfs -o mode=0755 tmpfs "$own"
mkdir "$own/upper" "$own/work" "$own/root"
root=$own/root
mount -t overlay -o "lowerdir=$image,upperdir=$own/upper,workdir=$own/work" overlay "$root"
place() {
    where=$root$(chroot "$root" realpath --canonicalize-missing "$2")
    if [ -d "$1" ]; then
        mkdir -p "$where"
    else
        mkdir -p "${where%/*}"
        [ -e "$where" ] || : >"$where"
    fi
    mount --bind "$1" "$where"
    [ "$3" = rw ] || mount -o remount,bind,ro "$where"
}
mkdir -p "$root/proc" "$root/sys" "$root/dev"
mount -t proc proc "$root/proc"
mount --bind -o ro "$root/proc/sys" "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir -m 1777 "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
place /etc/resolv.conf /etc/resolv.conf "$root_mode"
while [ "$1" != -- ]; do
    place "$1" "$2" "$3"
    shift 3
done
shift
mount -o "remount,bind,$root_mode" "$root"
exec chroot "$root" "$@"
