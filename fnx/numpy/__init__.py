"""NumPy's functions on arrays that can be traced, differentiated, batched and compiled."""
from fnx.core.array import install, Array
from fnx.numpy import ufuncs, operators as _o, indexing, at
install({**_o.operators(), "__getitem__": indexing.getitem, "at": property(at.At)})
