"""Backends: a jaxpr becomes native code. What primitives say of themselves is all that it knows."""
