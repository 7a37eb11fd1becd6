"""Optimisers of pytrees: triples of functions, `init`, `update` and `get_params`.

Each is written for one array, as `rule(...) -> (init, update, get_params)`; `optimizer` makes of it
one of pytrees of parameters. A step size is a number, or a function of the step's number.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import fnx.numpy as jnp
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.pytree import operations

Schedule = Callable[[Any], Any]
Rule = tuple[Callable[[Array], Any], Callable[[Any, Array, Any], Any], Callable[[Any], Array]]


@operations.register_pytree_node_class
class OptimizerState:
    """For each parameter the state that its rule keeps, and the structure of all parameters."""

    def __init__(self, states: tuple, structure: Any):
        self.states, self.structure = states, structure

    def tree_flatten(self) -> tuple[tuple, Any]:
        return (self.states,), self.structure

    @classmethod
    def tree_unflatten(cls, structure: Any, children: tuple) -> "OptimizerState":
        return cls(children[0], structure)


class Optimizer(NamedTuple):
    """`init_fn(params)`, `update_fn(step, grads, state)` and `params_fn(state)`."""

    init_fn: Callable[[Any], OptimizerState]
    update_fn: Callable[[Any, Any, OptimizerState], OptimizerState]
    params_fn: Callable[[OptimizerState], Any]


def optimizer(opt_maker: Callable[..., Rule]) -> Callable[..., Optimizer]:
    """An optimiser of pytrees from one of arrays."""

    @wraps(opt_maker)
    def make(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get = opt_maker(*args, **kwargs)

        def init_fn(params: Any) -> OptimizerState:
            leaves, structure = operations.tree_flatten(params)
            return OptimizerState(tuple(map(init, leaves)), structure)

        def update_fn(step: Any, grads: Any, state: OptimizerState) -> OptimizerState:
            leaves, structure = operations.tree_flatten(grads)
            if structure != state.structure:
                raise TypeMismatch(
                    f"the gradients are {operations.shown(structure)} for the parameters "
                    f"{operations.shown(state.structure)}; expected one structure"
                )
            new = [update(step, g, s) for g, s in zip(leaves, state.states, strict=True)]
            return OptimizerState(tuple(new), structure)

        def params_fn(state: OptimizerState) -> Any:
            return operations.tree_unflatten(state.structure, map(get, state.states))

        return Optimizer(init_fn, update_fn, params_fn)

    return make


# --- optimisers --------------------------------------------------------------------------------


@optimizer
def sgd(step_size):
    """Gradient descent.

    >>> from fnx.example_libraries import optimizers
    >>> init, update, get = optimizers.sgd(0.5)
    >>> get(update(0, {"w": 2.0}, init({"w": jnp.ones(2)})))
    {'w': Array([0., 0.], dtype=float64)}
    """
    step_size = make_schedule(step_size)
    return lambda x: x, lambda i, g, x: x - step_size(i) * g, lambda x: x


@optimizer
def momentum(step_size: Any, mass: float):
    """Gradient descent along sums of gradients, older ones of which weigh less by `mass` a step."""
    return _with_velocity(step_size, mass, ahead=False)


@optimizer
def nesterov(step_size: Any, mass: float):
    """As `momentum`, with the gradient added once more: Nesterov's acceleration."""
    return _with_velocity(step_size, mass, ahead=True)


def _with_velocity(step_size: Any, mass: float, ahead: bool) -> Rule:
    step_size = make_schedule(step_size)

    def update(i: Any, g: Array, state: tuple) -> tuple:
        x, velocity = state
        velocity = mass * velocity + g
        return x - step_size(i) * (mass * velocity + g if ahead else velocity), velocity

    return _and_zeros, update, _first


@optimizer
def adagrad(step_size, momentum=0.9):
    """Steps divided by the root of the sum of all squared gradients; with momentum."""
    step_size = make_schedule(step_size)

    def update(i: Any, g: Array, state: tuple) -> tuple:
        x, squares, mean = state
        squares = squares + jnp.square(g)
        scale = jnp.where(squares > 0, 1.0 / jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)
        mean = (1.0 - momentum) * (g * scale) + momentum * mean
        return x - step_size(i) * mean, squares, mean

    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def rmsprop(step_size, gamma=0.9, eps=1e-8):
    """Steps divided by the root of the running mean of squared gradients."""
    step_size = make_schedule(step_size)

    def update(i: Any, g: Array, state: tuple) -> tuple:
        x, squares = state
        squares = squares * gamma + jnp.square(g) * (1.0 - gamma)
        return x - step_size(i) * g / jnp.sqrt(squares + eps), squares

    return _and_zeros, update, _first


@optimizer
def rmsprop_momentum(step_size, gamma=0.9, eps=1e-8, momentum=0.9):
    """As `rmsprop`, with momentum."""
    step_size = make_schedule(step_size)

    def update(i: Any, g: Array, state: tuple) -> tuple:
        x, squares, velocity = state
        squares = gamma * squares + (1.0 - gamma) * jnp.square(g)
        velocity = momentum * velocity + step_size(i) * g / jnp.sqrt(squares + eps)
        return x - velocity, squares, velocity

    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def adam(step_size, b1=0.9, b2=0.999, eps=1e-8):
    """Running means of gradients over roots of those of their squares, both without their bias.

    >>> from fnx.example_libraries import optimizers
    >>> init, update, get = optimizers.adam(0.1)
    >>> state = init(jnp.array([1.0, -2.0]))
    >>> for step in range(200):
    ...     state = update(step, 2 * get(state), state)
    >>> bool(jnp.all(jnp.abs(get(state)) < 0.01))
    True
    """
    step_size = make_schedule(step_size)

    def update(i: Any, g: Array, state: tuple) -> tuple:
        x, mean, squares = state
        mean = (1 - b1) * g + b1 * mean
        squares = (1 - b2) * jnp.square(g) + b2 * squares
        unbiased = mean / (1 - jnp.asarray(b1, mean.dtype) ** (i + 1))
        spread = squares / (1 - jnp.asarray(b2, mean.dtype) ** (i + 1))
        return x - step_size(i) * unbiased / (jnp.sqrt(spread) + eps), mean, squares

    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def adamax(step_size, b1=0.9, b2=0.999, eps=1e-8):
    """As `adam`, with the largest gradients, slowly forgotten, for roots of means of squares."""
    step_size = make_schedule(step_size)

    def update(i: Any, g: Array, state: tuple) -> tuple:
        x, mean, largest = state
        mean = (1 - b1) * g + b1 * mean
        largest = jnp.maximum(b2 * largest, jnp.abs(g))
        rate = step_size(i) / (1 - jnp.asarray(b1, mean.dtype) ** (i + 1))
        return x - rate * mean / (largest + eps), mean, largest

    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def sm3(step_size, momentum=0.9):
    """As `adagrad`, with one number for each index of each axis in place of one for each element."""
    step_size = make_schedule(step_size)

    def init(x: Array) -> tuple:
        x = jnp.asarray(x)
        return x, jnp.zeros_like(x), [jnp.zeros(n, x.dtype) for n in x.shape]

    def update(i: Any, g: Array, state: tuple) -> tuple:
        x, mean, sums = state
        rank = jnp.ndim(x)
        bound = jnp.zeros(()) if not rank else None
        for k, s in enumerate(sums):
            wide = s.reshape([-1 if j == k else 1 for j in range(rank)])
            bound = wide if bound is None else jnp.minimum(bound, wide)
        bound = bound + jnp.square(g)
        scale = jnp.where(bound > 0, 1.0 / jnp.sqrt(jnp.where(bound > 0, bound, 1.0)), 0.0)
        mean = (1.0 - momentum) * (g * scale) + momentum * mean
        sums = [jnp.max(bound, axis=[j for j in range(rank) if j != k]) for k in range(rank)]
        return x - step_size(i) * mean, mean, sums

    return init, update, _first


def _and_zeros(x: Array) -> tuple:
    return x, jnp.zeros_like(x)


def _first(state: tuple) -> Array:
    return state[0]


# --- step sizes --------------------------------------------------------------------------------


def constant(step_size) -> Schedule:
    """The same step size always."""
    return lambda i: step_size


def exponential_decay(step_size, decay_steps, decay_rate) -> Schedule:
    """Step sizes that shrink by `decay_rate` in `decay_steps` steps."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size, decay_steps, decay_rate, staircase=False) -> Schedule:
    """Step sizes over 1 plus a multiple of the time; with `staircase` of whole times."""

    def schedule(i: Any) -> Any:
        time = jnp.floor(i / decay_steps) if staircase else i / decay_steps
        return step_size / (1 + decay_rate * time)

    return schedule


def polynomial_decay(step_size, decay_steps, final_step_size, power=1.0) -> Schedule:
    """Step sizes that go to the final one in `decay_steps` steps, along a power of the time left."""

    def schedule(i: Any) -> Any:
        left = 1 - jnp.minimum(i, decay_steps) / decay_steps
        return left**power * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """Step sizes that change at some steps.

    ValueError unless there is one more of them than of boundaries.

    >>> from fnx.example_libraries import optimizers
    >>> rate = optimizers.piecewise_constant([2, 4], [0.3, 0.2, 0.1])
    >>> [float(rate(i)) for i in (0, 3, 9)]
    [0.3, 0.2, 0.1]
    """
    boundaries, values = jnp.array(boundaries), jnp.array(values)
    if boundaries.ndim != 1 or values.shape != (boundaries.size + 1,):
        raise InvalidValue(
            f"step sizes of shape {values.shape} between boundaries of shape {boundaries.shape}; expected "
            "vectors, and one more step size than boundaries"
        )
    return lambda i: values[jnp.sum(i > boundaries)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A function of the step, of one or of a number."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeMismatch(
        f"a step size of type {type(scalar_or_schedule).__name__}; expected a number or a function"
    )


# --- gradients, and states that are stored -----------------------------------------------------


def l2_norm(tree):
    """The root of the sum of the squares of all numbers in a pytree."""
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in operations.tree_leaves(tree)))


def clip_grads(grad_tree, max_norm):
    """Gradients, made shorter together where their norm is larger than `max_norm`."""
    norm = l2_norm(grad_tree)
    factor = jnp.where(norm < max_norm, 1.0, max_norm / norm)
    return operations.tree_map(lambda g: g * factor, grad_tree)


class JoinPoint:
    """Where a pytree of parameters holds the state of one of them; a leaf."""

    def __init__(self, subtree: Any):
        self.subtree = subtree

    def __iter__(self) -> Any:
        yield self.subtree


def unpack_optimizer_state(opt_state):
    """A pytree as the parameters', of a `JoinPoint` for each of them: it can be stored with pickle."""
    marks = map(JoinPoint, opt_state.states)
    return operations.tree_unflatten(opt_state.structure, marks)


def pack_optimizer_state(marked_pytree):
    """The state of which `unpack_optimizer_state` made a pytree."""
    marks, structure = operations.tree_flatten(marked_pytree)
    if not all(isinstance(m, JoinPoint) for m in marks):
        raise TypeMismatch("expected a pytree whose leaves are all JoinPoints")
    return OptimizerState(tuple(m.subtree for m in marks), structure)
