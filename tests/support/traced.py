"""How often a function is traced."""

import functools


def traced_times(f):
    """The function, and a list that grows by one whenever it is traced."""
    times = []

    @functools.wraps(f)
    def counted(*args, **kwargs):
        times.append(1)
        return f(*args, **kwargs)

    return counted, times
