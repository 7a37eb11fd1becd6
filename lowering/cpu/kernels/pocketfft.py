"""PocketFFT, as NumPy ships it: the addresses of the C loops inside numpy.fft's universal functions.

Its arguments: args = (input, factor, output), dims = (transforms, length in, length out), and steps in
bytes: those from transform to transform of the three, then from element to element of input and
output. It keeps plans under a lock of its own, and takes the GIL only to raise MemoryError.
"""

from functools import lru_cache

from fnx.lowering.cpu.processor.ufunc_loops import Loop, loop

KINDS = ("fft", "ifft", "rfft_n_even", "rfft_n_odd", "irfft")


@lru_cache(maxsize=1)
def loops() -> dict[tuple[str, str], Loop] | None:
    """The loops by kind and dtype of the input ("float32", ...); None where NumPy has others."""
    try:
        from numpy.fft import _pocketfft_umath as module

        functions = {kind: getattr(module, kind) for kind in KINDS}
    except (ImportError, AttributeError):
        return None
    found = {}
    for kind, ufunc in functions.items():
        for dtype, signature in _signatures(kind).items():
            known = loop(ufunc, signature)
            if known is None:
                return None
            found[kind, dtype] = known
    return found


def _signatures(kind: str) -> dict[str, str]:
    """How NumPy writes the types of the loops that are wanted, by the dtype of the input."""
    if kind.startswith("rfft"):
        return {"float32": "ff->F", "float64": "dd->D"}
    out = "fd" if kind == "irfft" else "FD"
    return {"complex64": f"Ff->{out[0]}", "complex128": f"Dd->{out[1]}"}
