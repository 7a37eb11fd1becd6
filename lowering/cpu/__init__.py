"""The CPU backend: what one kind of processor needs beyond what all targets share."""
