"""The actual state of the relay addresses, and a change of it. PURE."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import RelayAddress
from nodeagent.model.facts import InterfaceAddress

DeviceStatus = Literal["absent", "up", "down", "foreign"]

DeviceStep = Literal["keep", "create", "set up", "delete"]


class AddressState(Struct, frozen=True):
    """All addresses of the node, and the device that is to hold the relay's.

    `kind` is the kernel's kind of the device (`dummy`), empty when it is absent. `made_by_us` is true when
    the device bears our alias: cleanup deletes such a device, and only empties any other.
    """

    addresses: tuple[InterfaceAddress, ...]
    device: str
    status: DeviceStatus
    kind: str = ""
    made_by_us: bool = False

    @property
    def ours(self) -> tuple[InterfaceAddress, ...]:
        """The relay addresses that nodeagent put on the node, on whichever device."""
        return tuple(address for address in self.addresses if address.ours)

    @property
    def notes(self) -> tuple[str, ...]:
        """None: what is wrong with an address is an error of the change."""
        return ()


@dataclass(frozen=True, slots=True)
class AddressChange:
    """What has to happen, for a person; true when that is anything.

    `home` is the device that the addresses of `add` go on. `refused` says for each desired address that
    can't be had why not; such an address makes the change true only if something else is to do.
    """

    before: AddressState = field(repr=False)
    home: str
    step: DeviceStep = "keep"
    add: tuple[RelayAddress, ...] = ()
    remove: tuple[InterfaceAddress, ...] = ()
    refused: Mapping[IPAddress, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.step != "keep" or self.add or self.remove)

    def __str__(self) -> str:
        lines = [f"! {address}: {reason}" for address, reason in self.refused.items()]
        return "\n".join([*lines, *filter(None, (self.growth, self.shrinkage))])

    @property
    def growth(self) -> str:
        """What is made and added, a line each."""
        lines = []
        if self.step == "create":
            lines.append(f"+ device {self.home} (the addresses go on lo if the kernel can't make it)")
        elif self.step == "set up":
            lines.append(f"~ device {self.home}: set up")
        home = "" if self.step == "create" else f" on {self.home}"
        lines += [f"+ {one.address}{home} ({one.load_balancer})" for one in self.add]
        return "\n".join(lines)

    @property
    def shrinkage(self) -> str:
        """What is removed, a line each."""
        lines = [f"- {one.address}/{one.prefix_length} on {one.interface}" for one in self.remove]
        if self.step == "delete":
            lines.append(f"- device {self.home}")
        return "\n".join(lines)
