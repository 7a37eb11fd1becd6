"""Programs as Python that stands alone: what NumPy and Numba run without fnx, in the user's words."""
