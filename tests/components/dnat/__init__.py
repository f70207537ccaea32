"""DNAT on the real kernel: judged by where packets arrive."""
