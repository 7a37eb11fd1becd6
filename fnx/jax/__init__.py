"""Programs and libraries written for JAX run on fnx: import this before anything imports JAX.

From then on `import jax`, `jax.numpy`, `jax.lax`, `jax._src.core` mean fnx's own modules in this process.

>>> import fnx.jax
>>> import jax.numpy, fnx.numpy
>>> jax.numpy is fnx.numpy
True

For programs that cannot be edited: `python -m fnx.jax PROGRAM`, `python -m fnx.jax -m module`, and
`pytest -p fnx.jax`. Nothing of the real jax or jaxlib is ever imported. Variables of the environment that
JAX reads, such as JAX_DEBUG_NANS=1 and JAX_ENABLE_X64=0, mean what they mean there; float64 is the default.
"""

import os

from fnx.jax.environment import follow
from fnx.jax.finder import install
from fnx.jax.missing import Missing, report

__all__ = ["Missing", "report"]

install()
follow(os.environ)
