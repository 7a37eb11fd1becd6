"""Calls of public functions: what goes wrong inside of one is told in the words of its caller."""

from collections.abc import Callable
from functools import wraps
from inspect import signature, unwrap
from types import FunctionType
from typing import Any

from fnx.core import lazy_imports
from fnx.core.array import Array
from fnx.core.errors import FnxError, InvalidIndex, InvalidValue, TypeMismatch, hide_frames
from fnx.core.interpreter import current, evaluate, public_runner
from fnx.core.source import brief, is_internal, name_of

_RETOLD = (TypeError, ValueError, LookupError, AttributeError, AssertionError, ZeroDivisionError)
_LIBRARIES = tuple(f"-packages/{name}/" for name in ("numpy", "scipy", "opt_einsum", "ml_dtypes"))


def retelling(fun: Callable, module: str) -> Callable:
    """`fun`, whose inner errors name it and its arguments; it lies in `module`, where pickle finds it.

    Results lie where its parameters `device`, `sharding` and `out_sharding` say, of which it knows nothing.
    """
    code = unwrap(fun).__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    places = tuple([name for name in ("device", "sharding", "out_sharding") if name in names])
    now = current.get

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if now() is evaluate or (run := public_runner()) is None:
                out = fun(*args, **kwargs)
            else:
                out = run(call, fun, args, kwargs)
            return out if not kwargs or not places else _lying(out, places, kwargs)
        except FnxError as error:
            hide_frames(error)
            raise
        except _RETOLD as error:
            if not _is_inner(error):
                hide_frames(error)
                raise
            raise _retold(fun, args, kwargs, error) from error

    call.__name__, call.__qualname__, call.__doc__ = fun.__name__, fun.__qualname__, fun.__doc__
    call.__module__ = module
    call.__wrapped__ = fun  # type: ignore[attr-defined]
    call.__dict__.update(fun.__dict__)
    return call


def as_one(fun: Callable) -> Callable:
    """`fun`, for who looks at results one operation: only what it returns can be a mistake."""

    @wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        run = None if current.get() is evaluate else public_runner()
        return fun(*args, **kwargs) if run is None else run(call, fun, args, kwargs)

    return call


def _lying(out: Any, places: tuple[str, ...], kwargs: dict) -> Any:
    """A result where the caller wants it; the first device is where arrays are anyway."""
    for name in places:
        place = kwargs.get(name)
        if place is not None and not isinstance(place, str) and getattr(place, "id", 1):
            out = lazy_imports.find(__name__, "device_put")(out, place)
    return out


def serve(module: dict[str, Any], but: tuple[str, ...] = ()) -> None:
    """Let the public functions of a module retell errors, but those that modules `but` define.

    Elementwise functions of arrays are excluded: they look at each argument themselves, and a call more
    would be a tenth of their time.
    """
    home = module["__name__"]
    listed = module.get("__all__", ())
    for name in listed or list(module):
        f = module[name]
        if type(f) is not FunctionType or name[0] == "_":
            continue
        defined = getattr(f, "__wrapped__", f).__module__
        if (listed or defined.startswith(home)) and not (but and defined.startswith(but)):
            module[name] = retelling(f, home)


def _is_inner(error: Exception) -> bool:
    """Whether fnx, or a library that it called, raised an error: no user's function did."""
    tb = error.__traceback__
    files = []
    while tb is not None:
        files.append(tb.tb_frame.f_code.co_filename)
        tb = tb.tb_next
    if len(files) < 2:  # the call itself does not fit the signature, which Python's error says
        return False
    return all(is_internal(f) or any(part in f for part in _LIBRARIES) for f in files)


def _retold(fun: Callable, args: tuple, kwargs: dict, error: Exception) -> FnxError:
    given = [_shown(a) for a in args] + [f"{k}={_shown(v)}" for k, v in kwargs.items()]
    text = (
        f"{fun.__name__}({', '.join(given)}) failed: {error}. Expected: {fun.__name__}{_signature(fun)}; "
        f"see help({fun.__name__})"
    )
    if isinstance(error, IndexError):
        return InvalidIndex(text)
    return (
        InvalidValue(text)
        if isinstance(error, (ValueError, ZeroDivisionError))
        else TypeMismatch(text)
    )


def _signature(fun: Callable) -> str:
    found = signature(fun)
    plain = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=found.empty))


def _shown(x: Any) -> str:
    """An argument as messages show it: the type of an array, the name of a function."""
    if isinstance(x, Array):
        aval = getattr(x, "aval", None)  # keys have none
        return f"a {type(x).__name__}" if aval is None else aval.str_short()
    if isinstance(x, (tuple, list)) and any(isinstance(v, Array) for v in x):
        return f"[{', '.join(map(_shown, x))}]"
    return name_of(x) if callable(x) else f"{brief(x, 40)}"
