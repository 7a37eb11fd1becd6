"""Imports of large packages, which an interrupt does not cut in two.

Python forgets a package whose import was interrupted, but not those of its modules that were there by then:
imported once more, the package never gets them as attributes, and is of no use until the process ends.
"""

import importlib
import sys
import threading
from contextlib import suppress


def whole(name: str) -> None:
    """Import a package in another thread, which interrupts do not come to, and wait for it.

    After an interrupt that thread goes on; who imports the package then waits for it. What the package says
    where it cannot be imported is for the statement that imports it.
    """
    if name in sys.modules or threading.current_thread() is not threading.main_thread():
        return
    thread = threading.Thread(target=_imported, args=(name,), name=f"import {name}")
    thread.start()
    thread.join()


def _imported(name: str) -> None:
    with suppress(Exception):
        importlib.import_module(name)
