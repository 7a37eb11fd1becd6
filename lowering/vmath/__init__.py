"""Vector mathematics: elementary functions as branch-free expressions of primitive operations."""

from . import exp_log, hyperbolic, inverse_trig, power, special, trig
from .lang import VMATH

__all__ = ["VMATH"]
