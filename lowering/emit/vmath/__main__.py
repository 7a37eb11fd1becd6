"""Writes the table of errors: `python -m fnx.lowering.emit.vmath > docs/vmath.md`."""

import sys

from .accuracy import table

sys.stdout.write(table())
