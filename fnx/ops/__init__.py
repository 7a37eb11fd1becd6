"""Every first-order primitive; a file holds a family and all its rules."""
