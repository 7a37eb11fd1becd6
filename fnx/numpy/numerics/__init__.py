"""Functions of NumPy written with the other rooms: statistics, sets, polynomials, grids, padding."""
