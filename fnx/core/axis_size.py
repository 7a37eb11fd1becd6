"""The number of lanes under vmap, which may know the name of their axis."""

from collections.abc import Hashable


class Lanes(int):
    """A number of lanes that knows the name of their axis, and whether each lane is a device.

    Batch rules get it as `size` and hand it on to the jaxprs that they batch, where collectives look
    for their name. It is equal to its number, as which it may stand in shapes: whoever remembers what
    was made for it needs the name beside it.
    """

    name: Hashable
    devices: bool

    def __new__(cls, size: int, name: Hashable, devices: bool = False) -> "Lanes":
        self = super().__new__(cls, size)
        self.name, self.devices = name, devices
        return self


def axis_name_of(size: int) -> Hashable | None:
    """The name of the axis of so many lanes; None if it has none."""
    return size.name if isinstance(size, Lanes) else None


def are_devices(size: int) -> bool:
    """Whether each of so many lanes is a device."""
    return isinstance(size, Lanes) and size.devices


__all__ = ["Lanes", "are_devices", "axis_name_of"]
