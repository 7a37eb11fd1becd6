"""Jaxprs: inputs, equations, outputs; typed, closed, single assignment, printable, checkable."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeVar, TypeVarTuple

from fnx.core.array import Array, ConcreteArray, as_array
from fnx.core.aval import ShapedArray
from fnx.core.errors import TypeMismatch
from fnx.core.interpreter import current, evaluate
from fnx.core.primitive import Primitive
from fnx.core.source import Source, SourceInfo, at_line, origin, set_origin

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Var:
    """A name for a value of a known type; compared by identity.

    >>> fnx.make_jaxpr(jnp.sin)(1.0).jaxpr.outs[0].aval
    ShapedArray(float64[], weak_type=True)
    """

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var({self.aval.str_short()})"


class DropVar(Var):
    """The name of a result that nobody reads, in JAX's jaxprs; those of fnx name all results.

    >>> issubclass(fnx.extend.core.DropVar, fnx.extend.core.Var)
    True
    """

    __slots__ = ()


class Literal:
    """A value in the text of a jaxpr: a number of rank 0 (on a tape of linear equations, any).

    >>> fnx.make_jaxpr(lambda x: x * 2.0)(1.0).jaxpr.eqns[0].inputs[1].value
    Array(2., dtype=float64, weak_type=True)
    """

    __slots__ = ("value",)

    def __init__(self, value: Array):
        self.value = value

    @property
    def aval(self) -> ShapedArray:
        return self.value.aval

    @property
    def val(self) -> Array:
        """The value, under JAX's name."""
        return self.value

    def __repr__(self) -> str:
        if isinstance(self.value, ConcreteArray) and self.value.ndim == 0:
            return f"{self.value._value.item()}:{self.aval.str_short()}"
        return f"<{self.aval.str_short()}>"


Atom = Var | Literal


class Eqn:
    """outs = primitive(*inputs), and the user's line that wrote it.

    >>> fnx.make_jaxpr(jnp.sin)(1.0).jaxpr.eqns[0].prim.name
    'sin'
    """

    __slots__ = ("inputs", "outs", "prim", "source")

    def __init__(
        self,
        prim: Primitive,
        inputs: Sequence[Atom],
        outs: Sequence[Var],
        source: Source | None = None,
    ):
        self.prim, self.inputs, self.outs, self.source = prim, tuple(inputs), tuple(outs), source

    primitive = property(lambda self: self.prim.public)
    invars = property(lambda self: list(self.inputs))
    outvars = property(lambda self: list(self.outs))
    params = property(lambda self: self.prim.closed_params())
    source_info = property(lambda self: SourceInfo(self.source))
    effects = property(
        lambda self: frozenset([self.prim.name]) if self.prim.effects else frozenset()
    )

    def __repr__(self) -> str:
        return f"{self.prim.name}({', '.join(map(repr, self.inputs))})"


class Jaxpr:
    """A function on arrays. Arrays that it closed over are its first `consts` inputs.

    It remembers what transformations made of it, so that each is made once.

    >>> fnx.make_jaxpr(lambda x: x * 2.0)(jnp.ones(3)).jaxpr
    { lambda ; a:f64[3]. let
        b:f64[3] = mul a 2.0:f64[]
      in (b,) }
    """

    __slots__ = ("__weakref__", "_made", "consts", "eqns", "inputs", "name", "outs")

    def __init__(
        self,
        inputs: Sequence[Var],
        eqns: Sequence[Eqn],
        outs: Sequence[Atom],
        consts: int = 0,
        name: str = "",
    ):
        self.inputs, self.eqns, self.outs = tuple(inputs), tuple(eqns), tuple(outs)
        self.consts, self.name = consts, name
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` makes of this jaxpr; it is made once, and remembered under the key."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def with_eqns(self, eqns: Sequence[Eqn], outs: Sequence[Atom] | None = None) -> "Jaxpr":
        """Of the same inputs, computed by other equations; `outs`: to other results."""
        outs = self.outs if outs is None else outs
        return Jaxpr(self.inputs, eqns, outs, self.consts, self.name)

    @property
    def in_avals(self) -> tuple[ShapedArray, ...]:
        return tuple(v.aval for v in self.inputs)

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        return tuple(v.aval for v in self.outs)

    @property
    def as_closed(self) -> "ClosedJaxpr":
        """As programs for JAX read parameters: closed, all inputs operands; always one object."""
        whole = lambda: Jaxpr(self.inputs, self.eqns, self.outs, name=self.name)
        return self.once("closed", lambda: ClosedJaxpr(whole() if self.consts else self, []))

    constvars = property(lambda self: list(self.inputs[: self.consts]))
    invars = property(lambda self: list(self.inputs[self.consts :]))
    outvars = property(lambda self: list(self.outs))
    effects = property(lambda self: frozenset().union(*[e.effects for e in self.eqns]))

    def __str__(self) -> str:
        return "\n".join(_Printer().jaxpr(self))

    __repr__ = __str__

    def pretty_print(self, **_: Any) -> str:
        """The text that `print` shows; JAX's options of how are passed over."""
        return str(self)


def made_once(fn: Callable[[Jaxpr, *Ts], T]) -> Callable[[Jaxpr, *Ts], T]:
    """A function of a jaxpr and of what hashes, whose results the jaxpr remembers."""

    @wraps(fn)
    def remembered(jaxpr: Jaxpr, *args: *Ts) -> T:
        return jaxpr.once((fn, *args), lambda: fn(jaxpr, *args))

    return remembered


class ClosedJaxpr:
    """A jaxpr with the arrays that it closed over.

    >>> offset = jnp.ones(2)
    >>> fnx.make_jaxpr(lambda x: x + offset)(2.0).consts
    [Array([1., 1.], dtype=float64)]
    """

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Array]):
        self.jaxpr, self.consts = jaxpr, list(consts)

    literals = property(lambda self: self.consts)
    in_avals = property(lambda self: [v.aval for v in self.jaxpr.inputs[self.jaxpr.consts :]])
    out_avals = property(lambda self: list(self.jaxpr.out_avals))
    eqns = property(lambda self: list(self.jaxpr.eqns))
    effects = property(lambda self: self.jaxpr.effects)

    def __str__(self) -> str:
        return str(self.jaxpr)

    __repr__ = __str__

    def pretty_print(self, **_: Any) -> str:
        """The text that `print` shows; JAX's options of how are passed over."""
        return str(self)


def eval_jaxpr(jaxpr: Jaxpr, args: Sequence[Array]) -> list[Array]:
    """Run a jaxpr under the current interpreter."""
    env: dict[Var, Array] = dict(zip(jaxpr.inputs, args, strict=True))
    interpreter = current.get()
    # What is recorded of an equation comes from where the equation does.
    before = None if interpreter is evaluate else set_origin[origin.get()]
    try:
        for eqn in jaxpr.eqns:
            values = tuple([env[a] if type(a) is Var else a.value for a in eqn.inputs])  # type: ignore
            if before is not None and eqn.source is not None:
                origin.set(eqn.source)
            # One without operands may stand for a value that is known.
            outs = interpreter.process(eqn.prim, values) if values else eqn.prim.apply()
            for var, out in zip(eqn.outs, outs, strict=True):
                env[var] = out
    finally:
        if before is not None:
            origin.reset(before)
    return [env[a] if type(a) is Var else a.value for a in jaxpr.outs]  # type: ignore


def eval_closed(jaxpr: Jaxpr, consts: Sequence, *args: object) -> list[Array]:
    """Results of a jaxpr, of the arrays that it closed over and its arguments."""
    return eval_jaxpr(jaxpr, [*map(as_array, consts), *map(as_array, args)])


def subjaxprs(prim: Primitive) -> Iterator[Jaxpr]:
    """The jaxprs that a primitive carries."""
    for value in prim.params().values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Jaxpr):
                yield item


# --- checking ----------------------------------------------------------------------------------


def check_jaxpr(jaxpr: Jaxpr) -> None:
    """Raise TypeMismatch unless each variable is defined once, before use, and with its true type.

    >>> fnx.extend.core.check_jaxpr(fnx.make_jaxpr(jnp.sin)(1.0).jaxpr)
    """
    defined: set[Var] = set()

    def define(variables: Iterable[Var], where: str) -> None:
        for v in variables:
            if v in defined:
                raise TypeMismatch(f"{where} defines a variable of type {v.aval} a second time")
            defined.add(v)

    def known(atoms: Iterable[Atom], where: str) -> None:
        for a in atoms:
            if type(a) is Var and a not in defined:
                raise TypeMismatch(f"{where} uses a variable of type {a.aval} before it is defined")

    define(jaxpr.inputs, "the jaxpr's inputs")
    for k, eqn in enumerate(jaxpr.eqns):
        where = f"equation {k}, {eqn.prim.name},"
        known(eqn.inputs, where)
        for sub in subjaxprs(eqn.prim):
            check_jaxpr(sub)
        avals = eqn.prim.abstract(*[a.aval for a in eqn.inputs])
        if len(avals) != len(eqn.outs):
            raise TypeMismatch(f"{where} has {len(eqn.outs)} results, its rule gives {len(avals)}")
        for var, aval in zip(eqn.outs, avals, strict=True):
            if not var.aval.like(aval):
                raise TypeMismatch(
                    f"{where} has a result of type {var.aval}, its rule gives {aval}"
                    + at_line(eqn.source)
                )
        define(eqn.outs, where)
    known(jaxpr.outs, "the jaxpr's outputs")


# --- printing ----------------------------------------------------------------------------------


def _letters(k: int) -> str:
    text = ""
    while True:
        text = chr(ord("a") + k % 26) + text
        k = k // 26 - 1
        if k < 0:
            return text


class _Printer:
    """Names variables a, b, c ... in the order in which they are met."""

    def __init__(self) -> None:
        self.names: dict[Var, str] = {}

    def name(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            return repr(atom)
        if atom not in self.names:
            self.names[atom] = _letters(len(self.names))
        return self.names[atom]

    def binder(self, variables: Iterable[Var]) -> str:
        return " ".join(f"{self.name(v)}:{v.aval.str_short()}" for v in variables)

    def jaxpr(self, jaxpr: Jaxpr) -> list[str]:
        consts, inputs = jaxpr.inputs[: jaxpr.consts], jaxpr.inputs[jaxpr.consts :]
        head = f"{{ lambda {self.binder(consts)} ; {self.binder(inputs)}. let"
        lines = [head.replace("lambda  ;", "lambda ;")]
        for eqn in jaxpr.eqns:
            lines += ["    " + line for line in self.eqn(eqn)]
        outs = ", ".join(map(self.name, jaxpr.outs)) + ("," if len(jaxpr.outs) == 1 else "")
        return [*lines, f"  in ({outs}) }}"]

    def eqn(self, eqn: Eqn) -> list[str]:
        plain, nested = [], []
        for key, value in eqn.prim.params().items():
            if isinstance(value, Jaxpr):
                nested.append((key, [value]))
            elif isinstance(value, tuple) and value and isinstance(value[0], Jaxpr):
                nested.append((key, list(value)))
            elif key != "name":
                plain.append(f"{key}={_param(value)}")
        inputs = "".join(" " + self.name(a) for a in eqn.inputs)
        left = f"{self.binder(eqn.outs)} = " if eqn.outs else "_ = "
        if not nested:
            params = f"[{' '.join(plain)}]" if plain else ""
            return [f"{left}{eqn.prim.name}{params}{inputs}"]
        lines = [f"{left}{eqn.prim.name}["]
        for key, subs in nested:
            for sub in subs:
                first, *rest = _Printer().jaxpr(sub)
                lines += [f"  {key}={first}", *("  " + line for line in rest)]
        return [*lines, *("  " + text for text in plain), f"]{inputs}"]


def _param(value: Any) -> str:
    return getattr(value, "__name__", None) or str(value)
