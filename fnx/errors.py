"""The errors that users meet, under JAX's names and fnx's own."""

from fnx.core.errors import (
    ClosedOverValue,
    CompileError,
    ConcretizationTypeError,
    FnxError,
    InvalidIndex,
    InvalidValue,
    JaxRuntimeError,
    KeyReuseError,
    MissingPackage,
    MissingRule,
    MixedDevices,
    NonConcreteBooleanIndexError,
    ShapeError,
    TooLarge,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    TypeMismatch,
    TypePromotionError,
    UnboundAxis,
    UnexpectedTracerError,
)
from fnx.process.retraces import RetraceWarning

JAXTypeError = TypeMismatch
JAXIndexError = NonConcreteBooleanIndexError

__all__ = [
    "ClosedOverValue",
    "CompileError",
    "ConcretizationTypeError",
    "FnxError",
    "InvalidIndex",
    "InvalidValue",
    "JAXIndexError",
    "JAXTypeError",
    "JaxRuntimeError",
    "KeyReuseError",
    "MissingPackage",
    "MissingRule",
    "MixedDevices",
    "NonConcreteBooleanIndexError",
    "RetraceWarning",
    "ShapeError",
    "TooLarge",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TypeMismatch",
    "TypePromotionError",
    "UnboundAxis",
    "UnexpectedTracerError",
]
