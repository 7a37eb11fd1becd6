"""Online checkpointing: reverse mode through a loop of unknown length.

The last states that are kept lie on a stack. To go back from iteration t, one runs forward from the top
of it to the state before t, and puts states on it on the way: at distances that are powers of a base,
each the largest that is less than the way left. So there are at most `base` states of each distance.
(The binomial distances of Griewank & Walther's revolve need fewer runs for the same memory, where that
is small; with bases of hundreds there are one to three.)

Source: Stumm & Walther 2010.
Input: a while loop over states and their tangents, and cotangents of its results.
Output: cotangents of its operands.
Legal when: always; the loop runs again from what it had.
Pays when: nothing bounds the number of iterations.
Costs: about log n / log base further runs of a loop of n iterations, whatever n is.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fnx.core import policy
from fnx.core.array import Array
from fnx.core.jaxpr import Eqn, Jaxpr, Var, eval_jaxpr
from fnx.core.primitive import Undefined
from fnx.interpreters.analysis.dependence import of_while
from fnx.interpreters.control_flow import ScanRecord, WhileRecord
from fnx.interpreters.linearize import backward_jaxpr
from fnx.interpreters.operands import only, spread, undefined
from fnx.interpreters.passes.dce import dce, used_inputs
from fnx.interpreters.rewrite import zeros_into
from fnx.interpreters.trace import trace
from fnx.ops.base.broadcast import full
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import add, sub
from fnx.ops.elementwise.select import gt, lt, select_n
from fnx.ops.structure.basic import scalar, zeros
from fnx.ops.structure.dynamic_slice import DynamicSlice, dynamic_update_slice

_INT = np.dtype(np.int64)

State = list[Array]


def transpose_while(
    loop: WhileRecord, kind: type[ScanRecord], cts: Sequence, args: Sequence
) -> list:
    """Cotangents of the `Undefined` operands of a loop over states and their tangents."""
    return _Reverse(loop, kind, args).run(cts, args)


def _number(value: int) -> Array:
    return scalar(value, _INT)


class _Reverse:
    """The loop's parts: the iteration of the states that are known, and that of the tangents."""

    def __init__(self, loop: WhileRecord, kind: type[ScanRecord], args: Sequence):
        self.loop, self.kind = loop, kind
        self.c, self.b, start = loop.parts(args)
        body, n = loop.body_jaxpr, loop.body_consts
        carries = body.inputs[n:]
        self.linear_b = undefined(self.b)
        self.linear = of_while(loop, undefined(args))
        self.known = tuple([not x for x in self.linear])
        kept = dce(
            Jaxpr(body.inputs, body.eqns, only(self.known, body.outs)), (True,) * sum(self.known)
        )
        self.reads = used_inputs(kept)
        self.forward = Jaxpr(only(self.reads, body.inputs), kept.eqns, kept.outs)
        self.avals = [v.aval for v in only(self.linear, carries)]
        self.start = only(self.known, start)
        size = max(sum(x.size * x.dtype.itemsize for x in self.start), 1)
        self.most = loop.most or max(policy.ONLINE_WORK // size, policy.ONLINE_ITERATIONS)
        self.base = max(
            min(
                max(policy.ONLINE_BYTES // size, policy.ONLINE_LEAST_BASE),
                policy.ONLINE_LARGEST_BASE,
                self.most,
            ),
            2,
        )
        self.levels = 1
        while self.base**self.levels < self.most:
            self.levels += 1

    def run(self, cts: Sequence, args: Sequence) -> list:
        """Count the iterations, then go back through them."""
        given = only(self.linear, cts)
        ct = [zeros(a) if x is None else x for x, a in zip(given, self.avals)]
        sums = [zeros(x.aval) for x in only(self.linear_b, self.b)]
        iterations = self._count()
        if self.loop.most is None:  # no wrong result, should it ever have been run
            lost = gt(iterations, _number(self.most))
            ct = [select_n(lost, x, full((), np.nan, x.dtype)) for x in ct]
        state = self._back(iterations, [*ct, *sums])
        ct, sums = state[: len(ct)], state[len(ct) :]
        start = self.loop.parts(args)[2]
        back = spread(self.linear, ct)
        carry = [g if isinstance(x, Undefined) else None for g, x in zip(back, start)]
        return [*[None] * len(self.c), *spread(self.linear_b, sums), *carry]

    # --- forward

    def _while(self, most: int, cond: Callable, body: Callable, init: State) -> State:
        """A loop of the functions' operations, of at most so many iterations."""
        avals = [x.aval for x in init]
        test, c = trace(lambda *s: [cond(*s)], avals, what="grad")
        step, b = trace(body, avals, what="grad")
        loop = type(self.loop)(test, len(c), step, len(b), self.loop.backend, most)
        return list(loop(*c, *b, *init))

    def _iteration(self, x: State) -> State:
        """The states after another iteration."""
        carry = iter(x)
        full_carry = [next(carry) if k else None for k in self.known]
        operands = [*self.b, *full_carry]
        return list(eval_jaxpr(self.forward, only(self.reads, operands)))

    def _numbered(self, i: Array, *x: Array) -> State:
        """The number and the states after another iteration."""
        return [add(i, _number(1)), *self._iteration(list(x))]

    def _count(self) -> Array:
        """How many iterations the loop runs."""
        test = self.loop.cond_jaxpr
        reads = used_inputs(test)
        kept = Jaxpr(only(reads, test.inputs), test.eqns, test.outs)

        def goes_on(i: Array, *x: Array) -> Array:
            operands = [*self.c, *spread(self.known, x)]
            return eval_jaxpr(kept, only(reads, operands))[0]

        return self._while(self.most, goes_on, self._numbered, [_number(0), *self.start])[0]

    def _ahead(self, n: Array, x: State) -> State:
        """The states after n more iterations."""

        start = [_number(0), *x]
        return self._while(self.most, lambda i, *_: lt(i, n), self._numbered, start)[1:]

    # --- backward

    def _back(self, iterations: Array, state: State) -> State:
        """Go back through all iterations. `state`: cotangents of tangents, sums of those of constants.

        If there are any, in a loop of one iteration: elements with trip counts of their own take it
        one after the other, and share one stack.
        """

        def once(t: Array, *state: Array) -> State:
            return [_number(0), *self._all_back(t, list(state))]

        return self._while(1, lambda t, *_: gt(t, _number(0)), once, [iterations, *state])[1:]

    def _all_back(self, iterations: Array, state: State) -> State:
        depth, m = self.base * self.levels + 1, len(state)
        # The numbers are of iterations before the states on the stack.
        numbers, *stack = _stacks(self.kind, [_number(0), *self.start], depth)

        def back(t: Array, top: Array, numbers: Array, *rest: Array) -> State:
            before = sub(t, _number(1))
            top, numbers, *stack = self._fill(before, [top, numbers, *rest[m:]])
            x = [_row(s, top) for s in stack]
            state = self._one_back(x, list(rest[:m]))
            return [before, sub(top, _number(1)), numbers, *state, *stack]

        init = [iterations, _number(0), numbers, *state, *stack]
        return self._while(self.most, lambda t, *_: gt(t, _number(0)), back, init)[3 : 3 + m]

    def _fill(self, target: Array, init: State) -> State:
        """Put states on the stack until that before iteration `target` is on top."""

        def missing(top: Array, numbers: Array, *_: Array) -> Array:
            return lt(_row(numbers, top), target)

        def push(top: Array, numbers: Array, *stack: Array) -> State:
            here = _row(numbers, top)
            step = self._distance(sub(target, here))
            x = self._ahead(step, [_row(s, top) for s in stack])
            top = add(top, _number(1))
            return [top, _put(numbers, top, add(here, step)), *map(_put, stack, [top] * len(x), x)]

        return self._while(self.base * self.levels, missing, push, init)

    def _distance(self, way: Array) -> Array:
        """The largest power of the base that is less than the way; at least 1."""
        step = _number(1)
        for level in range(1, self.levels):
            power = _number(self.base**level)
            step = select_n(gt(way, power), step, power)
        return step

    def _one_back(self, x: State, state: State) -> State:
        """Through one iteration, whose states are `x`."""
        m, sums = len(self.avals), sum(self.linear_b)
        body = self.loop.body_jaxpr
        consts = [Undefined(v.aval) if isinstance(v, Undefined) else v for v in self.b]
        tangents = iter([Undefined(a) for a in self.avals])
        values = iter(x)
        carry = [next(values) if k else next(tangents) for k in self.known]
        cts = spread(self.linear, state[:m], None)
        back = backward_jaxpr(body, [*consts, *carry], cts)
        nb = len(consts)
        ct = [
            zeros(a) if g is None else g for g, a in zip(only(self.linear, back[nb:]), self.avals)
        ]
        new = only(self.linear_b, back[:nb])
        total = [s if g is None else add(s, g) for s, g in zip(state[m : m + sums], new)]
        return [*ct, *total, *state[m + sums :]]


def _stacks(kind: type[ScanRecord], x: State, depth: int) -> State:
    """Room for so many states, with one in front; nobody reads the others before they are written."""
    iterations = Var(_number(0).aval)
    eqns: list[Eqn] = []
    body = Jaxpr([iterations], eqns, [zeros_into(eqns, v.aval) for v in x])
    room = kind(body, 1, 0, depth, counted=True)(
        _number(0)
    )  # rows of no iteration: nobody clears them
    return [_put(slots, _number(0), v) for slots, v in zip(room, x)]


def _put(slots: Array, k: Array, x: Array) -> Array:
    at = [k, *[_number(0)] * x.ndim]
    return dynamic_update_slice(slots, Reshape((1, *x.shape))(x), *at)


def _row(slots: Array, k: Array) -> Array:
    shape = slots.shape[1:]
    at = [k, *[_number(0)] * len(shape)]
    return Reshape(shape)(DynamicSlice((1, *shape))(slots, *at))
