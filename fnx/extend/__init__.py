"""What libraries that add to JAX import from `jax.extend`: new primitives, and jaxprs to read."""

from fnx.extend import backend as backend
from fnx.extend import core as core
from fnx.extend import linear_util as linear_util
from fnx.extend import random as random
from fnx.extend import source_info_util as source_info_util
