"""Jaxprs that look at each operation as they run: which one a nan or an infinity in results comes from."""
