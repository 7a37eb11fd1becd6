"""Updates."""


def scheduled(scheduler, loops, body, found, name, note):
    return False
