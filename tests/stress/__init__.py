"""Stress tests that run for minutes: `python -m tests.stress`.

A module here has `run(seconds: float, seed: int) -> list[str]`, which returns what went wrong.
"""
