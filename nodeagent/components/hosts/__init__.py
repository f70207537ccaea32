"""The hosts file: one managed block of relay addresses, last in a file that belongs to the user.

`block`, `own_lines` and `outside` are pure (bytes in, values out); `file`, `in_place`, `journal` and `mounts`
touch the disk; `applier` joins them.
"""
