"""Inputs whose errors are the largest that searches found: a few of each function."""

HARD: dict[tuple[str, str], list[tuple[float, ...]]] = {}
