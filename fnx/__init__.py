"""fnx: composable transformations of NumPy-style functions."""
