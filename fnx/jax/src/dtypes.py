"""`jax._src.dtypes`: what the public module has."""

import numpy as np

from fnx.dtypes import *  # equinox, flax, tinygp
from fnx.dtypes import TypePromotionError as TypePromotionError

DType = np.dtype  # flax


class ExtendedDType:  # flax: base of the dtype of its FP8 parameters
    """A dtype of a library's own. Classes of them can be defined; arrays of them are not to be had."""
