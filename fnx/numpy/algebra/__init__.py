"""Functions of NumPy for products, norms, factorizations and systems."""
