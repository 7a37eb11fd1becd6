"""Transformations: each module is one interpreter of primitives, or primitives that carry jaxprs."""
