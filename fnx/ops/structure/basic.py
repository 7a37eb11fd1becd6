"""What interpreters and rules of primitives need most, in one place."""

from fnx.ops.broadcast import (
    broadcast_axis,
    broadcast_to,
    full,
    insert_axes,
    ones,
    scalar,
    zeros,
)
from fnx.ops.convert import convert
from fnx.ops.permute import move_axis, reshape
from fnx.ops.pointwise import add as add_any
from fnx.ops.slice import slice_axis

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
