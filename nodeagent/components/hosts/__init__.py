"""The hosts file: one managed block of relay addresses, last in a file that belongs to the user.

`block` is pure, `file` touches the disk, `component` joins them.
"""
