"""Dtypes as objects: fnx.numpy.float32 is a dtype in arguments, and makes an array of a number."""

from typing import Any

import ml_dtypes
import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.numpy.arrays.creation import asarray
from fnx.numpy.arrays.util import type_of_any


class ScalarType(type):
    """A dtype that can be called: float32(1) is an array of rank 0. It is a class, as NumPy's are.

    >>> jnp.float32(1)
    Array(1., dtype=float32)
    """

    dtype: np.dtype
    type: Any  # NumPy's class
    __numpy_dtype__ = property(lambda self: self.dtype)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """Of each dtype, when somebody reads it."""
        return (
            f"The dtype {self.dtype.name}, which makes of a number an array of rank 0.\n\n"
            f">>> jnp.{self.__name__}(1).dtype\n{self.dtype!r}\n"
        )

    def __call__(self, x: Any = 0) -> Array:
        return asarray(x, dtype=self.dtype)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, ScalarType):
            return self.dtype == other.dtype
        if isinstance(other, str):
            return other == self.dtype.name
        if isinstance(other, (_CLASS, np.dtype)):
            try:
                return np.dtype(other) == self.dtype
            except TypeError:
                return False
        return NotImplemented

    def __instancecheck__(self, x: Any) -> Any:
        return isinstance(x, self.type)

    def __hash__(self) -> int:
        return hash(self.type)  # as NumPy's class, which it equals: sets of dtypes have both kinds

    def __repr__(self) -> str:
        return f"fnx.numpy.{self.__name__}"


_CLASS = type


def _scalar(name: str, like: Any) -> ScalarType:
    own = np.dtype(like)
    members = {"dtype": own, "type": own.type, "__module__": "fnx.numpy"}
    return ScalarType(name, (), members)


bool_ = bool = _scalar("bool_", np.bool_)
int8, int16, int32, int64 = (_scalar(f"int{n}", f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (_scalar(f"uint{n}", f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (_scalar(f"float{n}", f"float{n}") for n in (16, 32, 64))
complex64, complex128 = (_scalar(f"complex{n}", f"complex{n}") for n in (64, 128))
bfloat16 = _scalar("bfloat16", ml_dtypes.bfloat16)
# Those that fnx has no arrays of: programs compare dtypes with them.
float8_e3m4, float8_e4m3, float8_e4m3b11fnuz, float8_e4m3fn, float8_e4m3fnuz = (
    _scalar(f"float8_{name}", getattr(ml_dtypes, f"float8_{name}"))
    for name in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz")
)
float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu = (
    _scalar(f"float8_{name}", getattr(ml_dtypes, f"float8_{name}"))
    for name in ("e5m2", "e5m2fnuz", "e8m0fnu")
)
int2, int4, uint2, uint4, float4_e2m1fn = (
    _scalar(name, getattr(ml_dtypes, name))
    for name in ("int2", "int4", "uint2", "uint4", "float4_e2m1fn")
)
int_, uint, float_, complex_ = int64, uint64, float64, complex128
single, double, csingle, cdouble = float32, float64, complex64, complex128

dtype = np.dtype
generic, number, integer, inexact = np.generic, np.number, np.integer, np.inexact
signedinteger, unsignedinteger = np.signedinteger, np.unsignedinteger
floating, complexfloating = np.floating, np.complexfloating
character, flexible, object_ = np.character, np.flexible, np.object_


def _to_numpy(x: Any) -> Any:
    return x.dtype if isinstance(x, ScalarType) else x


def finfo(dtype: Any) -> Any:
    """The limits of a float dtype.

    >>> float(jnp.finfo(jnp.float64).eps) == 2.0**-52
    True
    """
    found = _to_numpy(dtype)
    found = dtypes.canonical(found if not isinstance(found, Array) else found.dtype)
    return dtypes.finfo(found)


def iinfo(int_type: Any) -> Any:
    """The limits of an integer dtype.

    >>> jnp.iinfo(jnp.int8).min, jnp.iinfo(jnp.int8).max
    (-128, 127)
    """
    return dtypes.iinfo(dtypes.canonical(_to_numpy(int_type)))


ComplexWarning = np.exceptions.ComplexWarning


class extended(np.generic):
    """The kind of dtypes that NumPy does not have.

    >>> fnx.dtypes.issubdtype(fnx.random.key(0).dtype, fnx.dtypes.extended)
    True
    """


class prng_key(extended):
    """The kind of the dtypes of random keys.

    >>> fnx.dtypes.issubdtype(fnx.random.key(0).dtype, fnx.dtypes.prng_key)
    True
    """


_ABSTRACT = {"i": signedinteger, "u": unsignedinteger, "f": floating}


def issubdtype(arg1: Any, arg2: Any) -> bool:  # type: ignore[valid-type]
    """Whether a dtype is of a kind: issubdtype(float32, floating); random keys are a `prng_key`.

    >>> jnp.issubdtype(jnp.float32, jnp.floating), jnp.issubdtype(jnp.float32, jnp.integer)
    (True, False)
    """
    if getattr(arg1, "extended", None) == "prng_key":
        return arg2 is arg1 or (isinstance(arg2, type) and issubclass(prng_key, arg2))
    if isinstance(arg2, type) and issubclass(arg2, extended):
        return False
    a, b = _to_numpy(arg1), _to_numpy(arg2)
    if isinstance(a, (Array, np.ndarray)):
        a = a.dtype
    if not isinstance(a, type) or not issubclass(a, np.generic):
        a = np.dtype(a)
    if dtypes.NAME.get(a) in dtypes.FOREIGN:
        abstract = _ABSTRACT[dtypes.kind(a)]
        if isinstance(b, type) and b.__module__ == "numpy":
            return issubclass(abstract, b)
        return np.dtype(b) == a
    return np.issubdtype(a, b)


def isdtype(dtype: Any, kind: Any) -> bool:  # type: ignore[valid-type]
    """Whether a dtype is of a kind of the array API: "real floating", "integral", ...

    >>> jnp.isdtype(jnp.int32, "integral"), jnp.isdtype(jnp.int32, ("real floating", "bool"))
    (True, False)
    """
    found = dtypes.canonical(_to_numpy(dtype))
    kinds = kind if isinstance(kind, tuple) else (kind,)
    words = {
        "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
        "complex floating": "c", "numeric": "iufc",
    }  # fmt: skip
    return any(
        dtypes.kind(found) in words[k] if isinstance(k, str) and k in words
        else found == dtypes.canonical(_to_numpy(k))
        for k in kinds
    )  # fmt: skip


def result_type(*args: Any) -> np.dtype:
    """The dtype to which arrays, Python numbers and dtypes are promoted.

    >>> jnp.result_type(jnp.float32, 1.0)
    dtype('float32')
    """
    own = [getattr(a, "dtype", a) for a in args]
    if own and getattr(own[0], "extended", None) and all(d is own[0] for d in own):
        return own[0]  # of random keys
    return dtypes.promote(tuple([type_of_any(_to_numpy(a)) for a in args]))[0]


def promote_types(a: Any, b: Any) -> np.dtype:
    """The dtype to which two dtypes are promoted.

    >>> jnp.promote_types(jnp.int32, jnp.float32)
    dtype('float32')
    """
    return result_type(a, b)


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:  # type: ignore[valid-type]
    """Whether NumPy would convert a dtype to another.

    >>> jnp.can_cast(jnp.int32, jnp.float64), jnp.can_cast(jnp.float64, jnp.int32)
    (True, False)
    """
    a = from_.dtype if isinstance(from_, Array) else _to_numpy(from_)
    return np.can_cast(a, _to_numpy(to), casting)


def isscalar(element: Any) -> bool:  # type: ignore[valid-type]
    """Whether it is a number, or an array of rank 0.

    >>> jnp.isscalar(3.0), jnp.isscalar(jnp.ones(2))
    (True, False)
    """
    element = element.__jax_array__() if hasattr(element, "__jax_array__") else element
    return np.isscalar(element) or (isinstance(element, (Array, np.ndarray)) and element.ndim == 0)


def iscomplexobj(x: Any) -> bool:  # type: ignore[valid-type]
    """Whether the dtype is complex.

    >>> jnp.iscomplexobj(jnp.array([1.0, 2j]))
    True
    """
    if x is None:
        return False
    if isinstance(x, (list, tuple)) or hasattr(x, "__jax_array__"):
        x = asarray(x)
    return dtypes.is_complex(x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype)


def isrealobj(x: Any) -> bool:  # type: ignore[valid-type]
    """Whether the dtype is not complex.

    >>> jnp.isrealobj(jnp.array([1.0, 2j]))
    False
    """
    return not iscomplexobj(x)


def iterable(y: Any) -> bool:  # type: ignore[valid-type]
    """Whether one can iterate over it.

    >>> jnp.iterable(jnp.ones(2)), jnp.iterable(3.0)
    (True, False)
    """
    return np.iterable(y) and getattr(y, "ndim", 1) != 0


__all__ = [
    "ComplexWarning",
    "bfloat16",
    "bool",
    "bool_",
    "can_cast",
    "cdouble",
    "character",
    "complex64",
    "complex128",
    "complex_",
    "complexfloating",
    "csingle",
    "double",
    "dtype",
    "finfo",
    "flexible",
    "float4_e2m1fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "float64",
    "float_",
    "floating",
    "generic",
    "iinfo",
    "inexact",
    "int2",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "int_",
    "integer",
    "iscomplexobj",
    "isdtype",
    "isrealobj",
    "isscalar",
    "issubdtype",
    "iterable",
    "number",
    "object_",
    "promote_types",
    "result_type",
    "signedinteger",
    "single",
    "uint",
    "uint2",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unsignedinteger",
]
