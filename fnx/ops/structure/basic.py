"""What interpreters and rules of primitives need most, in one place."""

from fnx.ops.base.broadcast import (
    broadcast_axis,
    broadcast_to,
    full,
    insert_axes,
    ones,
    scalar,
    zeros,
)
from fnx.ops.base.permute import move_axis, reshape
from fnx.ops.elementwise.convert import convert
from fnx.ops.elementwise.pointwise import add_any
from fnx.ops.structure.slice import slice_axis

__all__ = [
    "add_any",
    "broadcast_axis",
    "broadcast_to",
    "convert",
    "full",
    "insert_axes",
    "move_axis",
    "ones",
    "reshape",
    "scalar",
    "slice_axis",
    "zeros",
]
