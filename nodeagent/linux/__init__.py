"""What the kernel offers: netlink, inotify, files replaced whole, programs. It decides nothing."""
