"""Commands that measure the mathematical functions."""
