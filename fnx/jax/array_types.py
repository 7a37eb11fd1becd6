"""Types of arrays that say that they are of modules of jax: some libraries choose by that what to call.

opt_einsum and autoray, and with them PennyLane, compute with NumPy what they do not know.
"""

from fnx.core.array import Array, ConcreteArray


def claim() -> None:
    """Let the types of arrays and tracers say so, those that are not there yet, too."""
    Array.__init_subclass__ = classmethod(_claim)  # type: ignore[assignment, method-assign]
    kinds = [Array]
    for kind in kinds:
        kinds += kind.__subclasses__()
        _claim(kind)
    Array.__module__, ConcreteArray.__module__ = "jax", "jax._src.array"  # where pickle finds them


def _claim(kind: type) -> None:
    own, _, rest = kind.__module__.partition(".")
    if own == "fnx":
        kind.__module__ = f"jax.{rest}"
