"""Reverse mode of loops: what is stored, what is computed again, what is put back."""
