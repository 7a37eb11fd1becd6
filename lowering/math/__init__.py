"""Vector mathematics: elementary functions as branch-free expressions of primitive operations."""

from . import exp_log, hyperbolic, inverse_trig, power, remainder, special, trig
from .formulas import USUAL, VMATH

__all__ = [
    "USUAL",
    "VMATH",
    "exp_log",
    "hyperbolic",
    "inverse_trig",
    "power",
    "remainder",
    "special",
    "trig",
]
