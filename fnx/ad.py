"""What `with_refs` of a vjp takes and returns in the place of gradients, a module path of JAX."""

from fnx.transforms.symbolic_zeros import DidntWant, DontWant, GradRef, GradValue

__all__ = ["DidntWant", "DontWant", "GradRef", "GradValue"]
