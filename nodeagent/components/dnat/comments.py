"""The comment that each entry in the kernel bears: the Service it serves. PURE.

The only place where a name out of the cluster becomes part of a script, and so the only place that
decides which bytes may stand there.
"""

import re

from nodeagent.model.objects import ObjectRef

# NFTNL_UDATA_COMMENT_MAXLEN in libnftnl's udata.h: 128 bytes, nft refuses 129 ("comment too long, 128
# characters maximum allowed"). The longest Service of a real cluster fits: 63 + "/" + 63 = 127.
# The comment match of iptables takes 255 (XT_MAX_COMMENT_LEN).
COMMENT_LIMIT = 128

# Kubernetes admits less than this (RFC 1123 and 1035 labels). A quote, a backslash, a line's end or a
# "$" would mean something to nft, which has no escapes inside quotes.
_UNSAFE = re.compile(r"[^A-Za-z0-9._/-]")


def comment_of(owner: ObjectRef) -> str:
    """The comment for an entry of `owner`: `namespace/name`.

    Args:
        owner: Any object, even one whose names no API server would admit.

    Returns:
        1 to 128 characters out of `A-Z a-z 0-9 . _ / -`; every other character became `_`.
    """
    return _UNSAFE.sub("_", owner.path)[:COMMENT_LIMIT] or "unnamed"


def owner_of(comment: str) -> ObjectRef:
    """The Service that a comment read from the kernel names; `comment_of` gives it back."""
    namespace, _, name = comment.partition("/")
    return ObjectRef("Service", namespace, name) if namespace and name else ObjectRef("Service", "", comment)
