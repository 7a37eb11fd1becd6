"""`jax._src.numpy.array_methods`: the classes of `x.at` and `x.at[index]`."""

from fnx.numpy.structure.at import At as _IndexUpdateHelper  # unxt
from fnx.numpy.structure.at import AtIndex as _IndexUpdateRef  # unxt

__all__ = ["_IndexUpdateHelper", "_IndexUpdateRef"]
