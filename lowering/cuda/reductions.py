"""Reductions."""


def whole(scheduler, s, name, note):
    return False


def scheduled(scheduler, axes, body, name, note):
    return False
