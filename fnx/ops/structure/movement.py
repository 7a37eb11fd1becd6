"""Operations that move elements and compute nothing, in one place."""

from fnx.ops.base.broadcast import (
    Broadcast,
    broadcast_axis,
    broadcast_to,
    full,
    insert_axes,
    ones,
    zeros,
)
from fnx.ops.base.permute import Reshape, Rev, Squeeze, Transpose, move_axis
from fnx.ops.elementwise.convert import BitcastConvertType, ConvertElementType, convert
from fnx.ops.structure.join import Concatenate, Iota, Split
from fnx.ops.structure.slice import Pad, Slice, SliceAdd

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
