"""Jaxpr to jaxpr, one transformation of the literature a file."""
