"""Operations that move elements and compute nothing, in one place."""

from fnx.ops.broadcast import Broadcast
from fnx.ops.permute import Reshape, Rev, Squeeze, Transpose, move_axis

__all__ = ["Broadcast", "Reshape", "Rev", "Squeeze", "Transpose", "move_axis"]
