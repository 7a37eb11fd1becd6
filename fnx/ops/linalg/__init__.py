"""Primitives of linear algebra: contractions, convolutions, factorizations, Fourier transforms."""
