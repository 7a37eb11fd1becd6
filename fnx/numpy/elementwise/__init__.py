"""Functions of NumPy that compute each element by itself."""
