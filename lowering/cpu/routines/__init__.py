"""Operations that are calls of this CPU's libraries and kernels, and the table of all routines."""
