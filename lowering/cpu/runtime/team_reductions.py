"""Combining two arrays elementwise, as LLVM IR: `void (out, a, b, count)`; `out` may be `a`."""

WIDTH = 8  # elements of a vector

_FLOATS = {"float32": "float", "float64": "double"}
_INTEGERS = {"int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64"}
# Sums of integers are the same bits for both signs; complex numbers are summed as pairs.
SUMMED_AS = {f"u{name}": name for name in _INTEGERS} | {"complex64": "float32"}
SUMMED_AS |= {"complex128": "float64"}


def functions() -> dict[str, str]:
    """The definitions of all functions, by their names: `add_float64`, `max_uint8`."""
    found = {}
    for name, kind in _FLOATS.items():
        found[f"add_{name}"] = _function(f"add_{name}", kind, "fadd {type} {a}, {b}")
        for op in ("max", "min"):
            call = f"call {{type}} @llvm.{op}imum.{{suffix}}({{type}} {{a}}, {{type}} {{b}})"
            found[f"{op}_{name}"] = _function(f"{op}_{name}", kind, call)
    for name, kind in _INTEGERS.items():
        found[f"add_{name}"] = _function(f"add_{name}", kind, "add {type} {a}, {b}")
        for op in ("max", "min"):
            for sign in ("", "u"):
                order = f"{'u' if sign else 's'}{op}"
                call = f"call {{type}} @llvm.{order}.{{suffix}}({{type}} {{a}}, {{type}} {{b}})"
                found[f"{op}_{sign}{name}"] = _function(f"{op}_{sign}{name}", kind, call)
    return found


def declarations(definitions: dict[str, str]) -> dict[str, str]:
    """Declarations of LLVM's own functions that definitions call."""
    found = {}
    for kind in (*_FLOATS.values(), *_INTEGERS.values()):
        for many in (False, True):
            type_, suffix = _type(kind, many)
            ops = ("maximum", "minimum") if kind in _FLOATS.values() else _ORDERS
            for op in ops:
                name = f"llvm.{op}.{suffix}"
                found[name] = f"declare {type_} @{name}({type_}, {type_})"
    used = "\n".join(definitions.values())
    return {name: text for name, text in found.items() if f"@{name}(" in used}


_ORDERS = ("smax", "smin", "umax", "umin")
_SUFFIX = {"float": "f32", "double": "f64"}
_BYTES = {"float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


def _type(kind: str, many: bool) -> tuple[str, str]:
    suffix = _SUFFIX.get(kind, kind)
    return (f"<{WIDTH} x {kind}>", f"v{WIDTH}{suffix}") if many else (kind, suffix)


def _function(name: str, kind: str, operation: str) -> str:
    """A loop over vectors, and one over the rest."""
    size = _BYTES[kind]

    def step(many: bool) -> str:
        type_, suffix = _type(kind, many)
        k, n = ("%k", "v") if many else ("%j", "s")
        places = "\n".join(
            f"  %{n}p{x} = getelementptr inbounds {kind}, ptr %{x}, i64 {k}"
            for x in ("out", "a", "b")
        )
        result = operation.format(type=type_, suffix=suffix, a=f"%{n}a", b=f"%{n}b")
        return f"""{places}
  %{n}a = load {type_}, ptr %{n}pa, align {size}
  %{n}b = load {type_}, ptr %{n}pb, align {size}
  %{n}r = {result}
  store {type_} %{n}r, ptr %{n}pout, align {size}"""

    return f"""define void @{name}(ptr %out, ptr %a, ptr %b, i64 %count) nounwind {{
entry:
  %whole = and i64 %count, {-WIDTH}
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k1, %vectors ]
  %more = icmp slt i64 %k, %whole
  br i1 %more, label %vectors, label %rest
vectors:
{step(True)}
  %k1 = add nuw nsw i64 %k, {WIDTH}
  br label %head
rest:
  %j = phi i64 [ %whole, %head ], [ %j1, %one ]
  %some = icmp slt i64 %j, %count
  br i1 %some, label %one, label %done
one:
{step(False)}
  %j1 = add nuw nsw i64 %j, 1
  br label %rest
done:
  ret void
}}"""
