"""The errors that users meet; each is also the builtin error that NumPy or JAX users expect."""


from fnx.core.source import at_line, user_source


class FnxError(Exception):
    """Base of all errors of fnx: what happened, what was expected, how to mend it.

    The line of the user's code that was running is added to the message and kept as `source`.
    """

    def __init__(self, message: str, *rest: object):
        self.source = user_source()
        super().__init__(message + at_line(self.source), *rest)


class TypeMismatch(FnxError, TypeError):
    """Wrong dtypes, shapes or kinds of values where types are checked (JAX raises TypeError)."""


class ShapeError(FnxError, TypeError, ValueError):
    """Shapes that do not fit together; a TypeError as in JAX and a ValueError as in NumPy."""


class InvalidValue(FnxError, ValueError):
    """An argument outside what a function accepts (an axis, a mode, a length)."""


class TracerArrayConversionError(FnxError, TypeError):
    """A traced value was asked for its NumPy array, which does not exist while tracing."""


class ConcretizationTypeError(FnxError, TypeError):
    """A traced value was used where Python needs a known number."""


class TracerBoolConversionError(ConcretizationTypeError):
    """A Python branch (`if`, `while`, `and`, `assert`) on a traced value.

    Use `lax.cond`, `jnp.where` or `lax.while_loop`, or mark the argument static.
    """


class TracerIntegerConversionError(FnxError, TypeError):
    """A traced value was used as a Python integer (an index of a list, a length, `range`)."""


class NonConcreteBooleanIndexError(FnxError, IndexError):
    """A traced mask as an index: the shape of the result would depend on values."""


class UnexpectedTracerError(FnxError):
    """A traced value outlived the transformation that made it (a leak by a side effect)."""


class UnboundAxis(FnxError, NameError):
    """A collective over a named axis that no vmap, pmap or shard_map around it binds."""


class MissingRule(FnxError, NotImplementedError):
    """A primitive lacks a rule that a transformation needs."""


class KeyReuseError(FnxError, RuntimeError):
    """A random key was used twice."""


class CompileError(FnxError, RuntimeError):
    """Native code could not be made; names the file with the Kernel IR and the way around."""
