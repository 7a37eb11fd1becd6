"""What becomes of threads, and of what they hold, when a process forks, ends or is interrupted."""
