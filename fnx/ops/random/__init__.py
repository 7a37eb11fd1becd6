"""Primitives that draw random bits and samples."""
