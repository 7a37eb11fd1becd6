"""Primitives that move elements: slices, joins, gathers, scatters, windows."""
