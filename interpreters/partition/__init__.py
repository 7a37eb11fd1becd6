"""SPMD partitioning: a program of whole arrays as one member's program of their parts."""
