"""Operations that move elements and compute nothing, in one place."""

from fnx.ops.broadcast import (
    Broadcast,
    broadcast_axis,
    broadcast_to,
    full,
    insert_axes,
    ones,
    zeros,
)
from fnx.ops.convert import BitcastConvertType, ConvertElementType, convert
from fnx.ops.join import Concatenate, Iota, Split
from fnx.ops.permute import Reshape, Rev, Squeeze, Transpose, move_axis
from fnx.ops.slice import Pad, Slice, SliceAdd

__all__ = [
    "BitcastConvertType",
    "Broadcast",
    "Concatenate",
    "ConvertElementType",
    "Iota",
    "Pad",
    "Reshape",
    "Rev",
    "Slice",
    "SliceAdd",
    "Split",
    "Squeeze",
    "Transpose",
    "broadcast_axis",
    "broadcast_to",
    "convert",
    "full",
    "insert_axes",
    "move_axis",
    "ones",
    "zeros",
]
