"""`jax._src.dtypes`: what the public module has."""

from fnx.dtypes import *  # equinox, flax, tinygp
from fnx.dtypes import TypePromotionError as TypePromotionError
