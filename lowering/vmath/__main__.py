"""Writes the table of errors: `python -m fnx.lowering.vmath > docs/vmath.md`."""

import sys

from .accuracy import table

sys.stdout.write(table())
