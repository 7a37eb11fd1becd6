"""Calls cut in two for reverse mode: what runs forward, and the linear rest.

Input: the jaxpr of a call, and which inputs have tangents.
Output: the split that `residuals.py` chooses.
Legal when: always.
Pays when: always.
Costs: as `residuals.py`.
"""

from fnx.core.jaxpr import Jaxpr, made_once
from fnx.interpreters.reverse.residuals import Split, split


@made_once
def split_call(jaxpr: Jaxpr, nonzero: tuple[bool, ...]) -> Split:
    """A jaxpr's derivative, where all inputs may be read again."""
    return split(jaxpr, nonzero, [0] * len(jaxpr.inputs))
