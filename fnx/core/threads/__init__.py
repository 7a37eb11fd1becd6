"""What becomes of threads, and of what they hold, when a process forks or ends."""
