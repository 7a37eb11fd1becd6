"""checkpoint (remat): derivatives that store less and compute again; and policies of what to store."""

from collections.abc import Callable, Iterable
from typing import Any

from fnx.core import config
from fnx.core.array import Array, as_array
from fnx.core.def_use import definitions
from fnx.core.errors import TypeMismatch
from fnx.core.jaxpr import Jaxpr, Var
from fnx.core.primitive import Primitive
from fnx.core.source import brief
from fnx.interpreters.linearize import linearize_jaxpr
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.primitives.checkpoint import Checkpoint, Named
from fnx.interpreters.trace import CapturedRefs, trace
from fnx.pytree import operations
from fnx.pytree.flatten_fun import flatten_arrays, name_of, signature_of, wraps
from fnx.pytree.key_paths import keystr
from fnx.transforms.mutable_refs import RefGiven, through_refs

__all__ = [
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "print_saved_residuals",
    "remat",
]

Policy = Callable[..., bool]


def checkpoint(
    fun: Callable | None = None,
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | tuple[int, ...] = (),
    static_argnames: str | Iterable[str] = (),
    concrete: Any = False,
) -> Callable:
    """The same function, whose derivative stores its arguments alone, or what `policy` says.

    The rest is computed again when the derivative is. Loops (`scan`) choose what to store by
    themselves, so that they seldom need it.

    TypeError for what is no function.

    >>> fnx.grad(fnx.checkpoint(lambda x: x * x * x))(2.0)
    Array(12., dtype=float64, weak_type=True)
    """
    del concrete, prevent_cse
    if fun is None:
        return lambda f: checkpoint(
            f, policy=policy, static_argnums=static_argnums, static_argnames=static_argnames
        )
    if not callable(fun):
        raise TypeMismatch(
            f"checkpoint needs a function, got {type(fun).__name__}: {brief(fun, 80)}"
        )
    if not (policy is None or callable(policy)):
        raise TypeMismatch(
            f"checkpoint with policy={brief(policy, 80)}; expected one of fnx.checkpoint_policies, or a "
            "function"
        )
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = {static_argnames} if isinstance(static_argnames, str) else set(static_argnames)

    @wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if config.exploration.get() is not None:
            return fun(*args, **kwargs)
        static = {k % len(args) for k in numbers if args}
        fixed = {k: v for k, v in kwargs.items() if k in names}
        dynamic = tuple(a for k, a in enumerate(args) if k not in static)
        named = {k: v for k, v in kwargs.items() if k not in names}

        def call(*some: Any, **more: Any) -> Any:
            rest = iter(some)
            full = [args[k] if k in static else next(rest) for k in range(len(args))]
            return fun(*full, **more, **fixed)

        call.__name__ = name_of(fun)
        try:
            return _checkpointed(call, policy, dynamic, named)
        except (RefGiven, CapturedRefs):
            transform = lambda f: lambda *xs: _checkpointed(f, policy, xs, {})
            return through_refs(call, dynamic, named, transform, f"checkpoint of {name_of(fun)}")

    return checkpointed


def _checkpointed(fun: Callable, policy: Policy | None, args: tuple, kwargs: dict) -> Any:
    """Results of a function of arrays, as one equation."""
    name = name_of(fun)
    leaves, treedef = flatten_arrays((args, kwargs), f"arguments of {name}")
    structures: list = []

    def flat(*xs: Array) -> list[Array]:
        some, more = treedef.unflatten(xs)
        arrays, structure = flatten_arrays(fun(*some, **more), "results")
        structures.append(structure)
        return arrays

    jaxpr, consts = trace(flat, [x.aval for x in leaves], what=f"checkpoint of {name}", name=name)
    outs = Checkpoint(jaxpr, policy)(*consts, *leaves)
    return operations.tree_unflatten(structures[0], outs)


remat = checkpoint


def checkpoint_name(x: Any, name: str) -> Any:
    """`x` under a name that policies can ask for.

    >>> float(fnx.ad_checkpoint.checkpoint_name(2.0, "start"))
    2.0
    """
    return operations.tree_map(lambda leaf: Named(name)(as_array(leaf)), x)


def print_saved_residuals(f: Callable, *args: Any, **kwargs: Any) -> None:
    """Print the types of what the derivative of `f` at these arguments stores, and whence it is.

    >>> fnx.ad_checkpoint.print_saved_residuals(lambda x, y: jnp.sin(x) * y, 1.0, 2.0)
    f64[]* from the argument y
    f64[]* output of cos from <doctest ...>:1 (<lambda>)
    f64[]* output of sin from <doctest ...>:1 (<lambda>)
    """
    leaves, treedef = flatten_arrays((args, kwargs), "arguments")

    def flat(*xs: Array) -> list[Array]:
        a, k = treedef.unflatten(xs)
        return flatten_arrays(f(*a, **k), "results")[0]

    jaxpr, consts = trace(flat, [x.aval for x in leaves], what="print_saved_residuals")
    forward, _, _, mask = linearize_jaxpr(simplify(jaxpr), (True,) * len(jaxpr.inputs))
    names = [f"the argument {name}" for name in _names_of_leaves(f, args, kwargs)]
    given = dict(zip(forward.inputs, [*["a constant"] * len(consts), *names], strict=True))
    stored = {v for v in forward.outs[len(mask) :] if isinstance(v, Var)}
    for v in [v for v in given if v in stored]:
        print(f"{v.aval.str_short()} from {given[v]}")  # noqa: T201
    for v in dict.fromkeys(forward.outs[len(mask) :]):
        if v in stored and v not in given:
            print(f"{v.aval.str_short()} {_made_by(v, forward)}")  # noqa: T201


def _names_of_leaves(f: Callable, args: tuple, kwargs: dict) -> list[str]:
    """The leaves of arguments by their names in the function's signature, and paths in those."""
    signature = signature_of(f)
    try:
        named = {} if signature is None else signature.bind(*args, **kwargs).arguments
    except TypeError:
        named = {}
    names = list(named) if len(named) == len(args) + len(kwargs) else []
    names = names or [*(f"number {k}" for k in range(len(args))), *kwargs]
    found = []
    for name, value in zip(names, [*args, *kwargs.values()], strict=True):
        found += [name + keystr(path) for path, _ in operations.tree_flatten_with_path(value)[0]]
    return found


def _made_by(v: Var, jaxpr: Jaxpr) -> str:
    """The operation that makes a value, inside of what is checkpointed, too; and its place."""
    e = definitions(jaxpr.eqns)[v]
    if isinstance(e.prim, Checkpoint):
        inner = e.prim.jaxpr
        made = inner.outs[e.outs.index(v)]
        if made in definitions(inner.eqns):
            return _made_by(made, inner)
    what = f"named {e.prim.label!r}" if isinstance(e.prim, Named) else f"output of {e.prim.name}"
    return f"{what} from {e.source}" if e.source else what


# --- policies ----------------------------------------------------------------------------------


class checkpoint_policies:
    """What a checkpointed function's derivative stores; each is asked about each primitive.

    >>> policy = fnx.checkpoint_policies.save_only_these_names("wave")
    >>> def f(x):
    ...     return jnp.sin(fnx.ad_checkpoint.checkpoint_name(x**2, "wave"))
    >>> float(fnx.grad(fnx.checkpoint(f, policy=policy))(0.0))
    0.0
    """

    @staticmethod
    def everything_saveable(prim: Primitive, *_: Any, **__: Any) -> bool:
        """Store everything."""
        return True

    @staticmethod
    def nothing_saveable(prim: Primitive, *_: Any, **__: Any) -> bool:
        """Store the arguments alone."""
        return False

    @staticmethod
    def dots_saveable(prim: Primitive, *_: Any, **__: Any) -> bool:
        """Store the results of matrix products and convolutions."""
        return prim.name in ("dot_general", "conv_general_dilated")

    checkpoint_dots = dots_saveable

    @staticmethod
    def dots_with_no_batch_dims_saveable(prim: Primitive, *_: Any, **params: Any) -> bool:
        """Store the results of matrix products without batch dimensions."""
        if prim.name != "dot_general":
            return False
        _, (lhs, rhs) = params["dimension_numbers"]
        return not lhs and not rhs

    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    @staticmethod
    def save_only_these_names(*names: str) -> Policy:
        """Store the values to which checkpoint_name gave one of these names."""

        def policy(prim: Primitive, *_: Any, **params: Any) -> bool:
            return prim.name == "name" and params["name"] in names

        return policy

    @staticmethod
    def save_any_names_but_these(*names: str) -> Policy:
        """Store the values that have a name, but for these."""

        def policy(prim: Primitive, *_: Any, **params: Any) -> bool:
            return prim.name == "name" and params["name"] not in names

        return policy

    @staticmethod
    def save_anything_except_these_names(*names: str) -> Policy:
        """Store everything but the values that have one of these names."""

        def policy(prim: Primitive, *_: Any, **params: Any) -> bool:
            return not (prim.name == "name" and params["name"] in names)

        return policy

    @staticmethod
    def save_from_both_policies(first: Policy, second: Policy) -> Policy:
        """Store what either policy stores."""

        def policy(prim: Primitive, *avals: Any, **params: Any) -> bool:
            return first(prim, *avals, **params) or second(prim, *avals, **params)

        return policy

    @staticmethod
    def save_and_offload_only_these_names(
        *,
        names_which_can_be_saved: Iterable[str],
        names_which_can_be_offloaded: Iterable[str],
        offload_src: str = "device",
        offload_dst: str = "pinned_host",
    ) -> Policy:
        """Store the values of both lists; a CPU has one memory."""
        del offload_src, offload_dst
        names = (*names_which_can_be_saved, *names_which_can_be_offloaded)
        return checkpoint_policies.save_only_these_names(*names)
