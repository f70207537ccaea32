"""The hosts file: one managed block of relay addresses, last in a file that belongs to the user.

`block` and `lines` are pure (bytes in, values out); `file` and `in_place` touch the disk;
`component` joins them.
"""
