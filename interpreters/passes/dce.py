"""Dead code elimination: equations, operands and results that no result of the jaxpr needs.

Source: Muchnick 1997, ch. 18.
Input: a jaxpr, and which of its results are used.
Output: a jaxpr of the same inputs with those results alone.
Legal when: an equation without effects is dead; loops and branches lose dead carries and results, too.
Pays when: always.
Costs: one walk over the equations, backwards.
"""

from collections.abc import Sequence

from fnx.core.jaxpr import Eqn, Jaxpr, Var, made_once


def dce(jaxpr: Jaxpr, used: Sequence[bool]) -> Jaxpr:
    """With the outputs `used` alone, and without equations, operands and results that they do not need.

    The inputs stay as they are. A primitive that carries jaxprs may offer `prune(used results)`,
    which gives a primitive, and which operands and results are left. What is needed as a whole is the
    same object, and keeps what was made of it.
    """
    return _live(jaxpr, tuple(used))


@made_once
def _live(jaxpr: Jaxpr, used: tuple[bool, ...]) -> Jaxpr:
    outs = [o for o, u in zip(jaxpr.outs, used, strict=True) if u]
    needed = {o for o in outs if type(o) is Var}
    kept, changed = [], not all(used)
    for e in reversed(jaxpr.eqns):
        want = [v in needed for v in e.outs]
        if not any(want) and not e.prim.effects:
            changed = True
            continue
        prune = getattr(e.prim, "prune", None)
        if prune is not None:
            prim, ins, left = prune(tuple(want))
            if prim is not e.prim or not (all(ins) and all(left)):
                changed = True
                e = Eqn(
                    prim,
                    [a for a, k in zip(e.inputs, ins, strict=True) if k],
                    [v for v, k in zip(e.outs, left, strict=True) if k],
                    e.source,
                )
        kept.append(e)
        needed.update([a for a in e.inputs if type(a) is Var])
    return jaxpr if not changed else jaxpr.with_eqns(kept[::-1], outs)


def used_inputs(jaxpr: Jaxpr) -> tuple[bool, ...]:
    """Which inputs are read."""
    read = {a for e in jaxpr.eqns for a in e.inputs if type(a) is Var}
    read.update(o for o in jaxpr.outs if type(o) is Var)
    return tuple([v in read for v in jaxpr.inputs])
