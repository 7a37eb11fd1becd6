"""The Kernel IR: typed scalar expressions in loops, branches, stores and calls; its checker and printer."""
