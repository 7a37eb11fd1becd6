"""Primitives that compute each element by itself, their special functions and conversions."""
