"""Pytrees: registered classes, key paths, operations on trees, functions of their leaves."""
