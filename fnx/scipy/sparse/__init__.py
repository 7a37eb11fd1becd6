"""Linear systems given by functions, with scipy.sparse's names."""

from fnx.scipy.sparse import linalg as linalg
