"""What programs are compiled for: this machine's CPU, and the C loops of its libraries."""
