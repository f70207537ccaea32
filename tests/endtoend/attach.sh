#!/bin/sh
# $1 is the program, $2 the control group. The pin ends with the mount namespace; the attachment stays.
set -eu
mount -t bpf bpf /sys/fs/bpf
bpftool prog load "$1" /sys/fs/bpf/rewrite
bpftool cgroup attach "$2" connect4 pinned /sys/fs/bpf/rewrite
