"""Functions of NumPy that reduce or accumulate along axes."""
