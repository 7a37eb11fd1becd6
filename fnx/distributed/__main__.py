"""Runs a script as one rank of those that mpiexec starts."""

import sys

from fnx.distributed.launch import main

if __name__ == "__main__":
    main(sys.argv[1:])
