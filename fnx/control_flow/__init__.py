"""Loops and branches for users: scan, while_loop, fori_loop, cond, switch, map, associative_scan."""

from fnx.control_flow.associative import associative_scan
from fnx.control_flow.branches import cond, switch
from fnx.control_flow.loops import fori_loop, map, scan, while_loop

__all__ = [
    "associative_scan",
    "cond",
    "fori_loop",
    "map",
    "scan",
    "switch",
    "while_loop",
]
