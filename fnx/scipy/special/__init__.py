"""Special functions, with scipy.special's names."""

from fnx.scipy.special.bessel import *  # noqa: F403
from fnx.scipy.special.elementary import *  # noqa: F403
from fnx.scipy.special.gammas import *  # noqa: F403
from fnx.scipy.special.integrals import *  # noqa: F403
from fnx.scipy.special.normal import *  # noqa: F403
