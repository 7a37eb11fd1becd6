"""Functions of NumPy that move, choose, join or sort elements, and x.at."""
