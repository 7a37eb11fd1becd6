"""Kernel IR to Kernel IR for any target: fusion, strip mining, splitting, buffers."""
