"""What people see of programs: how far they are, where they go wrong, where time and memory go."""
