"""Input-output aliasing: which results take over the memory of which donated inputs (XLA's donation).

While a program is built a donated input is as one of a loop's carries, and the result is its next
value: where the input is dead by then, the result is computed in its place.

Input: a jaxpr, and the numbers of inputs that callers give away.
Output: pairs of a result and an input of one shape and dtype.
Legal when: the input is dead where the result is written; pairs for which it is not are refused, and the
program is built again.
Pays when: the input is no small array.
Costs: builds without the refused pairs.
"""

from collections.abc import Collection, Sequence

from fnx.core.jaxpr import Jaxpr, Var

from . import fusion_policy

Aliases = dict[int, int]  # number of a result: number of the input whose memory it has


def candidates(
    jaxpr: Jaxpr, donated: Sequence[int], refused: Collection[tuple[int, int]] = ()
) -> Aliases:
    """For each donated input a result of its type, if possible one that depends on it.

    `refused` pairs have been tried.
    """
    found: Aliases = {}
    outs = [
        v if type(v) is Var and v not in jaxpr.outs[:j] else None for j, v in enumerate(jaxpr.outs)
    ]
    for k in donated:
        x = jaxpr.inputs[k]
        if fusion_policy.is_small(x.aval.shape):
            continue
        options = [
            j
            for j, v in enumerate(outs)
            if v is x
            or (v is not None and v not in jaxpr.inputs and x not in outs and _is_like(x, v))
        ]
        options = [j for j in options if j not in found and (j, k) not in refused]
        if options:
            near = _dependent(jaxpr, x)
            found[min(options, key=lambda j: (outs[j] not in near, j))] = k
    return found


def _dependent(jaxpr: Jaxpr, x: Var) -> set[Var]:
    found = {x}
    for e in jaxpr.eqns:
        if not found.isdisjoint([a for a in e.inputs if type(a) is Var]):
            found.update(e.outs)
    return found


def _is_like(a: Var, b: Var) -> bool:
    return (a.aval.shape, a.aval.dtype) == (b.aval.shape, b.aval.dtype)
