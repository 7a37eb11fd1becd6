"""Pytrees: registered classes, key paths, operations on trees, functions of their leaves."""

from fnx.core.threads.at_exit import at_the_end_only

with at_the_end_only():  # it forgets all classes then
    import optree
