"""Every number on which a choice for Numba depends, each with its unit and its reason."""

# Statements, of which a loop or a branch counts as five, of a function that stays whole: some of Numba's
# passes take time with the square of its blocks. One of 400 statements takes 0.3 s, one of 6,000 over 60 s.
WHOLE = 600
PART = 200  # statements of a part of a longer one: a function more takes Numba 15 ms
