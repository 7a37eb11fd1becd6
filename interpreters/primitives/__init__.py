"""Primitives that carry jaxprs or users' rules: calls, branches, loops, custom derivatives."""
