"""Functions exported from one process to others: programs in files, for sizes that may be symbolic.

The format is fnx's own, of jaxprs; there is no StableHLO.
"""

from typing import Any

from fnx.core.errors import InvalidValue
from fnx.core.fast_dataclasses import dataclass
from fnx.export.dimensions import SymbolicScope, is_symbolic_dim, symbolic_shape
from fnx.export.exported import Exported, deserialize
from fnx.export.exporting import export
from fnx.export.files import VERSION
from fnx.export.python_source import python
from fnx.export.trees import (
    register_namedtuple_serialization,
    register_pytree_node_serialization,
)
from fnx.pytree import operations
from fnx.transforms.make_jaxpr import ShapeDtypeStruct

minimum_supported_calling_convention_version = VERSION
maximum_supported_calling_convention_version = VERSION


@dataclass(frozen=True)
class DisabledSafetyCheck:
    """A check that JAX makes of exported programs and that one can switch off; fnx makes none of them.

    >>> fnx.export.DisabledSafetyCheck.platform()
    DisabledSafetyCheck(_impl='platform')
    """

    _impl: str

    @classmethod
    def platform(cls) -> "DisabledSafetyCheck":
        """That the platform of a call is one of those exported for."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> "DisabledSafetyCheck":
        """That a custom call keeps its meaning."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The target of a custom call, if it is that check."""
        tag, _, name = self._impl.partition(":")
        return name if tag == "custom_call" else None

    def __str__(self) -> str:
        return self._impl


def default_export_platform() -> str:
    """The platform that functions are exported for.

    >>> fnx.export.default_export_platform()
    'cpu'
    """
    return "cpu"


def symbolic_args_specs(
    args: Any,
    shapes_specs: Any,
    constraints: Any = (),
    scope: SymbolicScope | None = None,
) -> Any:
    """The types of arguments, with the symbolic shapes of a tree prefix of texts; None: as they are.

    >>> fnx.export.symbolic_args_specs((jnp.ones((2, 3)), 1.0), ("b, ...", None))[0]
    ShapeDtypeStruct(shape=(b, 3), dtype=float64)
    """
    if scope is not None and constraints:
        raise InvalidValue(
            "both scope and constraints of symbolic_args_specs; expected one of them"
        )
    scope = SymbolicScope(constraints) if scope is None else scope
    leaves, treedef = operations.tree_flatten(args)
    marked = operations.tree_map(
        lambda s: s or "...", shapes_specs, is_leaf=lambda x: x is None or isinstance(x, str)
    )
    texts = operations.broadcast_prefix(marked, args, lambda x: isinstance(x, str))
    types = [ShapeDtypeStruct.like(x) for x in leaves]
    specs = [
        ShapeDtypeStruct(symbolic_shape(text, scope=scope, like=t.shape), t.dtype)
        for text, t in zip(texts, types, strict=True)
    ]
    return operations.tree_unflatten(treedef, specs)


__all__ = [
    "DisabledSafetyCheck",
    "Exported",
    "SymbolicScope",
    "default_export_platform",
    "deserialize",
    "export",
    "is_symbolic_dim",
    "maximum_supported_calling_convention_version",
    "minimum_supported_calling_convention_version",
    "python",
    "register_namedtuple_serialization",
    "register_pytree_node_serialization",
    "symbolic_args_specs",
    "symbolic_shape",
]
