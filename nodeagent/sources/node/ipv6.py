"""Whether IPv6 is switched off on this node, and by what. EFFECTS: reads /proc."""

from pathlib import Path

_ROOT = Path("/proc")


def ipv6_switched_off(proc: Path = _ROOT) -> str:
    """By what IPv6 is off in this thread's network namespace, for a person; empty where it is on.

    A kernel booted with `ipv6.disable=1` makes none of IPv6's files. The sysctl `all/disable_ipv6` takes the
    addresses from every interface and lets none be added (Documentation/networking/ip-sysctl.rst).
    """
    if not (proc / "thread-self/net/if_inet6").exists():
        return "ipv6.disable=1, or a kernel without IPv6"
    try:
        value = (proc / "sys/net/ipv6/conf/all/disable_ipv6").read_text(encoding="ascii")
    except OSError:
        return ""  # /proc/sys is hidden from this process: the addresses tell
    return "" if value.strip() == "0" else "sysctl net.ipv6.conf.all.disable_ipv6"
