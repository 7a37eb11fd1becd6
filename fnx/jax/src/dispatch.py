"""`jax._src.dispatch`: waiting for effects."""

from fnx.process.runtime import effects_barrier as wait_for_tokens  # equinox

__all__ = ["wait_for_tokens"]
