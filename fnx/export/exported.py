"""Exported functions: programs without Python, to be called, differentiated, and kept in files."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, as_array, is_array_like
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue, MissingRule, TypeMismatch
from fnx.core.jaxpr import Jaxpr, check_jaxpr
from fnx.core.source import brief
from fnx.export import encoding, templates, trees
from fnx.export.dimensions import Dim, SymbolicScope, number_at, parse_size, solve
from fnx.export.files import VERSION, damaged, pack, unpack
from fnx.interpreters.passes.simplify import without_rules
from fnx.interpreters.primitives.jit import Jit
from fnx.pytree import operations
from fnx.transforms.custom_derivatives import custom_vjp
from fnx.transforms.grad import vjp as pulled_back
from fnx.transforms.jit import jit
from fnx.transforms.make_jaxpr import ShapeDtypeStruct
from fnx.transforms.traced_program import Empty


class Body:
    """A traced program: its jaxpr, the arrays it closed over, and its leaves without values."""

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Array], empty: Empty):
        self.jaxpr, self.consts, self.empty = jaxpr, list(consts), empty

    @staticmethod
    def of(function: Any, args: tuple, kwargs: dict) -> "tuple[Body, Any]":
        """That of a jitted function at arguments' types, and the structure of its results."""
        program = function.trace(*args, **kwargs).program
        return Body(program.jaxpr, program.consts, program.empty), program.structure

    def __call__(self, *leaves: Any) -> list:
        values = Empty.without(self.empty.inputs, leaves)
        outs = Jit(self.jaxpr, "exported").apply(*self.consts, *values)
        return Empty.within(self.empty.outs, outs)

    def encoded(self) -> list:
        """As a tree; rules of users' are lost, so that derivatives are written beside it."""
        empty = [
            [[k, list(x.shape)] for k, x in e.items()] for e in (self.empty.inputs, self.empty.outs)
        ]
        consts = [encoding.encode(c) for c in self.consts]
        return [encoding.encode_jaxpr(without_rules(self.jaxpr)), consts, *empty]

    @staticmethod
    def decoded(tree: list) -> "Body":
        jaxpr, consts, *empty = tree
        decoded = encoding.decode(jaxpr)
        check_jaxpr(decoded)
        found = [{k: np.zeros(shape, dtypes.float0) for k, shape in e} for e in empty]
        return Body(decoded, list(map(encoding.decode, consts)), Empty(*found))


def _aval_text(aval: Any) -> list:
    name = dtypes.NAME.get(aval.dtype) or "float0"
    return [name, [n if type(n) is int else str(n) for n in aval.shape]]


def _aval_of(text: list, scope: SymbolicScope) -> ShapedArray:
    name, shape = text
    dtype = dtypes.float0 if name == "float0" else dtypes.canonical(name)
    return ShapedArray(tuple(n if type(n) is int else parse_size(n, scope) for n in shape), dtype)


class Exported:
    """A function that was traced and is no Python any more; `serialize` gives the bytes of a file.

    There is no StableHLO in it: what asks for that raises NotImplementedError.

    >>> double = fnx.export.export(fnx.jit(lambda x: 2.0 * x))(fnx.ShapeDtypeStruct((3,), float))
    >>> double.in_avals, double.platforms
    ((ShapedArray(float64[3]),), ('cpu',))
    >>> double.call(jnp.ones(3))
    Array([2., 2., 2.], dtype=float64)
    """

    nr_devices = 1
    calling_convention_version = VERSION
    uses_global_constants = False
    ordered_effects: tuple = ()
    unordered_effects: tuple = ()

    def __init__(
        self,
        fun_name: str,
        structures: tuple[Any, Any],
        avals: tuple[tuple[ShapedArray, ...], tuple[ShapedArray, ...]],
        template: Any,
        scope: SymbolicScope,
        *,
        samples: "list[tuple[templates.Sizes, Body]] | None" = None,
        derivative: "Exported | None" = None,
        platforms: Sequence[str] = ("cpu",),
        disabled_checks: Sequence[Any] = (),
    ):
        self.fun_name, self.platforms = fun_name, tuple(platforms)
        self.disabled_safety_checks = tuple(disabled_checks)
        self.in_tree, self.out_tree = structures
        self.in_avals, self.out_avals = avals
        self.template, self.scope = template, scope
        self._samples, self._derivative = samples, derivative
        self._bodies: dict[tuple, Body] = {}

    module_kept_var_idx = property(lambda self: tuple(range(len(self.in_avals))))
    in_shardings_jax = lambda self, mesh: (None,) * len(self.in_avals)
    out_shardings_jax = lambda self, mesh: (None,) * len(self.out_avals)
    in_shardings_hlo = property(lambda self: (None,) * len(self.in_avals))
    out_shardings_hlo = property(lambda self: (None,) * len(self.out_avals))

    @property
    def mlir_module_serialized(self) -> bytes:
        raise MissingRule(
            f"the StableHLO of the exported function {self.fun_name}: fnx has none, and compiles jaxprs "
            "itself; expected serialize() and fnx.export.deserialize, or call()"
        )

    def mlir_module(self) -> str:
        """Not there, since fnx does not go through StableHLO."""
        return self.mlir_module_serialized  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"Exported(fun_name={self.fun_name}, ...)"

    # --- calls ----------------------------------------------------------------------------------

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The results; ValueError for arguments of other structure, shapes or dtypes."""
        leaves, treedef = operations.tree_flatten((args, kwargs))
        if treedef != self.in_tree:
            raise InvalidValue(
                f"the exported function {self.fun_name} was called with arguments of structure "
                f"{operations.shown(treedef)}; expected {operations.shown(self.in_tree)}"
            )
        arrays = [x if getattr(x, "dtype", None) == dtypes.float0 else _array(x) for x in leaves]
        sizes = self._sizes(arrays)
        outs = self._differentiable(sizes)(*arrays)
        return operations.tree_unflatten(self.out_tree, outs)

    def _sizes(self, arrays: Sequence[Any]) -> templates.Sizes:
        """The values of the dimension variables, after a check of all shapes and dtypes."""
        pairs: list = []
        for k, (x, aval) in enumerate(zip(arrays, self.in_avals, strict=True)):
            fits = len(x.shape) == len(aval.shape) and all(
                type(n) is Dim or n == m for n, m in zip(aval.shape, x.shape)
            )
            if not fits or x.dtype != aval.dtype:
                raise InvalidValue(
                    f"leaf {k} of the arguments of the exported function {self.fun_name} is of type "
                    f"{ShapedArray(x.shape, x.dtype).str_short()}; expected {aval.str_short()}"
                )
            pairs += zip(aval.shape, x.shape, strict=True)
        return solve(pairs, self.scope)

    def body(self, sizes: templates.Sizes) -> Body:
        """The program for these sizes."""
        key = tuple(sorted(sizes.items()))
        if key not in self._bodies:
            self._bodies[key] = Body.decoded(templates.at(self.template, sizes))
        return self._bodies[key]

    def _differentiable(self, sizes: templates.Sizes) -> Callable:
        body = self.body(sizes)
        call = custom_vjp(body)
        call.defvjp(lambda *xs: (body(*xs), xs), lambda xs, cts: tuple(self._pull(xs, cts)))
        return call

    def _pull(self, xs: Sequence[Any], cts: Sequence[Any]) -> list:
        full = [
            np.zeros(ct.shape, dtypes.float0) if not dtypes.is_inexact(a.dtype) else ct
            for ct, a in zip(cts, self.out_avals, strict=True)
        ]
        return self.vjp().call(*xs, *full)

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The bytes of a file, with derivatives up to an order.

        InvalidValue, a ValueError, for what lives in this process only: callbacks, users' primitives.
        """
        if type(vjp_order) is not int or vjp_order < 0:
            raise InvalidValue(
                f"vjp_order {vjp_order!r}; expected an order of derivatives, 0 or more"
            )
        return pack(encoded(self, vjp_order))

    # --- derivatives ----------------------------------------------------------------------------

    def has_vjp(self) -> bool:
        """Whether there is a derivative: in a file, where `serialize` was asked for one."""
        return self._derivative is not None or self._samples is not None

    def vjp(self) -> "Exported":
        """The exported function from arguments and cotangents of results, in a row, to those of arguments.

        ValueError where the file has no derivative.
        """
        if self._derivative is None:
            self._derivative = self._made_derivative()
        return self._derivative

    def _made_derivative(self) -> "Exported":
        if self._samples is None:
            raise InvalidValue(
                f"the derivative of the exported function {self.fun_name}, which its file does not have; "
                "expected one that was written with serialize(vjp_order=1), or more"
            )
        n = len(self.in_avals)
        avals = (*self.in_avals, *[a.to_tangent_aval() for a in self.out_avals])
        samples, structures = [], None
        for sizes, body in self._samples:

            def pull(*xs: Any, body: Body = body) -> Any:
                given = xs[n:]
                return pulled_back(body, *xs[:n])[1](list(given))

            types = [struct_at(a, sizes) for a in avals]
            derivative, structure = Body.of(jit(pull), tuple(types), {})
            samples.append((sizes, derivative))
            structures = operations.tree_structure((tuple(types), {})), structure
        assert structures is not None
        outs = tuple([a.to_tangent_aval() for a in self.in_avals])
        name = f"{self.fun_name}_vjp"
        return made(name, structures, (avals, outs), samples, self.scope)


def _array(x: Any) -> Array:
    if not is_array_like(x):
        raise TypeMismatch(
            f"an argument of an exported function is no array: {type(x).__name__} {brief(x)}"
        )
    return as_array(x)


def struct_at(aval: ShapedArray, sizes: templates.Sizes) -> ShapeDtypeStruct:
    return ShapeDtypeStruct([number_at(n, sizes) for n in aval.shape], aval.dtype)


def made(
    name: str,
    structures: tuple,
    avals: tuple,
    samples: "list[tuple[templates.Sizes, Body]]",
    scope: SymbolicScope,
    **options: Any,
) -> Exported:
    """The exported function of its bodies at sample sizes."""
    if len(samples) == 1:
        exported = Exported(name, structures, avals, None, scope, samples=samples, **options)
        exported._bodies[()] = samples[0][1]
        return exported
    overlay = templates.Overlay([sizes for sizes, _ in samples])
    template = overlay.of([body.encoded() for _, body in samples])
    return Exported(name, structures, avals, template, scope, samples=samples, **options)


# --- trees for files ---------------------------------------------------------------------------


def encoded(exported: Exported, vjp_order: int) -> dict:
    """All of an exported function as a tree, with derivatives up to an order."""
    static = exported.template is None
    return {
        "fun_name": exported.fun_name,
        "platforms": list(exported.platforms),
        "disabled_checks": [str(c) for c in exported.disabled_safety_checks],
        "trees": [trees.encode_tree(exported.in_tree), trees.encode_tree(exported.out_tree)],
        "avals": [
            list(map(_aval_text, exported.in_avals)),
            list(map(_aval_text, exported.out_avals)),
        ],
        "constraints": list(exported.scope.texts),
        "body": exported.body({}).encoded() if static else exported.template,
        "vjp": encoded(exported.vjp(), vjp_order - 1) if vjp_order > 0 else None,
    }


def decoded(tree: dict, scope: SymbolicScope | None = None) -> Exported:
    """The exported function of its tree."""
    scope = SymbolicScope(tree["constraints"]) if scope is None else scope
    in_avals, out_avals = (tuple([_aval_of(a, scope) for a in avals]) for avals in tree["avals"])
    structures = tuple(map(trees.decode_tree, tree["trees"]))
    derivative = None if tree["vjp"] is None else decoded(tree["vjp"], scope)
    exported = Exported(
        tree["fun_name"], structures, (in_avals, out_avals), tree["body"], scope, derivative=derivative,
        platforms=tree["platforms"], disabled_checks=tree["disabled_checks"],
    )  # fmt: skip
    if not any(type(n) is Dim for a in in_avals for n in a.shape):
        exported.body({})  # which finds out at once whether it can be read
    return exported


def deserialize(blob: Any) -> Exported:
    """The exported function of the bytes that `serialize` gave.

    TypeError for what is no bytes, InvalidValue, a ValueError, for damaged ones and for other versions.

    >>> double = fnx.export.export(fnx.jit(lambda x: 2.0 * x))(1.0)
    >>> fnx.export.deserialize(double.serialize()).call(4.0)
    Array(8., dtype=float64)
    """
    tree = unpack(blob)
    try:
        return decoded(tree)
    except InvalidValue:
        raise
    except Exception as error:  # a tree of other operations than there are: any lookup may fail
        raise damaged(f"{type(error).__name__}: {error}") from error


__all__ = ["Body", "Exported", "deserialize", "made", "struct_at"]
