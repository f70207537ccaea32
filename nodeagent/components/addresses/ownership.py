"""Which addresses of the node are ours. PURE.

On our own device every address in the configured ranges. On `lo`, which belongs to the system, only an
address in the ranges that bears our mark:

- IPv4: the label `lo:hairpin0`, which the kernel keeps with the address.
- IPv6 has no labels: the protocol number of the address (IFA_PROTO, Linux 5.18). Older kernels drop that
  attribute; there a host address is ours that is deprecated for ever, without DAD and without a prefix route,
  as nodeagent adds it and hardly anybody else would.
"""

from ipaddress import IPv4Network, IPv6Address, IPv6Network

from msgspec import Struct

from nodeagent.model.addresses import IPAddress
from nodeagent.model.facts import InterfaceAddress

ALIAS = "nodeagent"
"""The alias (IFLA_IFALIAS) of a device that nodeagent made: `ip link` shows it."""

# include/uapi/linux/if_addr.h: 1 to 3 are the kernel's own (IFAPROT_KERNEL_LO, _RA, _LL), the rest is free.
PROTOCOL = 110

# IFA_F_* of the same header: NODAD makes an address usable at once; NOPREFIXROUTE keeps the route out of the
# main table (the one in the local table is all it takes); DEPRECATED is what a preferred lifetime of 0 gives.
NODAD, DEPRECATED, NOPREFIXROUTE = 0x02, 0x20, 0x200
FLAGS_GIVEN = NODAD | NOPREFIXROUTE
_FLAGS_SHOWN = FLAGS_GIVEN | DEPRECATED

Ranges = tuple[IPv4Network, IPv6Network]


class KernelAddress(Struct, frozen=True):
    """An address as the kernel lists it; `protocol` is None where the kernel tells none."""

    address: IPAddress
    prefix_length: int
    interface: str
    label: str = ""
    flags: int = 0
    protocol: int | None = None


def label_on_lo(device: str) -> str:
    """The label of an IPv4 address on `lo`: at most 15 bytes (IFNAMSIZ - 1), as for an interface."""
    return f"lo:{device}"[:15]


def owned(found: KernelAddress, ranges: Ranges, device: str, *, device_is_ours: bool) -> InterfaceAddress:
    """The address as the planner sees it, with the verdict whether it is ours."""
    in_range = any(found.address in network for network in ranges)
    if found.interface == device:
        ours = in_range and device_is_ours
    else:
        ours = in_range and found.interface == "lo" and _marked(found, device)
    return InterfaceAddress(found.address, found.prefix_length, found.interface, ours=ours)


def _marked(found: KernelAddress, device: str) -> bool:
    if found.prefix_length != found.address.max_prefixlen:
        return False
    if not isinstance(found.address, IPv6Address):
        return found.label == label_on_lo(device)
    if found.protocol is not None:
        return found.protocol == PROTOCOL
    return found.flags & _FLAGS_SHOWN == _FLAGS_SHOWN
