"""Primitives that reduce, accumulate or sort along axes."""
