"""The size of a batch axis (vmap), which may know the axis's name."""

from collections.abc import Hashable


class AxisSize(int):
    """A number of batch elements that knows the name of their axis, and whether each is a device.

    Batch rules get it as `size` and hand it on to the jaxprs that they batch, where collectives look
    for their name. It is equal to its number, as which it may stand in shapes: whoever remembers what
    was made for it needs the name beside it.
    """

    name: Hashable
    devices: bool

    def __new__(cls, size: int, name: Hashable, devices: bool = False) -> "AxisSize":
        self = super().__new__(cls, size)
        self.name, self.devices = name, devices
        return self


def axis_name_of(size: int) -> Hashable | None:
    """The name of the axis of this size; None if it has none."""
    return size.name if isinstance(size, AxisSize) else None


def are_devices(size: int) -> bool:
    """Whether each element of an axis of this size is a device."""
    return isinstance(size, AxisSize) and size.devices


__all__ = ["AxisSize", "are_devices", "axis_name_of"]
