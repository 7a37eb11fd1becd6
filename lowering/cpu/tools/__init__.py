"""Commands that fit and measure the mathematical functions."""
