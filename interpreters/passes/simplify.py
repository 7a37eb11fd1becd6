"""The passes over jaxprs, in order: what every jaxpr goes through, and what a backend compiles besides.

Results keep their bits but where a pass says otherwise: products and loops add up in another order.
"""

from collections.abc import Callable

from fnx.core import policy
from fnx.core.jaxpr import Jaxpr, made_once
from fnx.interpreters.rewrite import jaxpr_fields

from .accumulator_init import accumulate
from .broadcast_sinking import repeated_inside
from .choice_factoring import factored_choices
from .constant_residuals import without_known_stacks
from .copy_insertion import handed_on
from .dce import dce
from .layout_assignment import transposed_columns
from .predictive_commoning import without_shifted_stacks
from .reduce_of_dot import sums_in_products
from .transpose_folding import without_transposed_products
from .transpose_sinking import in_order_of_products
from .updates_to_concatenate import cut_sums, in_pieces, whole_sums
from .value_numbering import ValueNumbering


def simplify(jaxpr: Jaxpr, final: bool = False) -> Jaxpr:
    """An equivalent jaxpr with the same inputs; made once.

    A `final` one will not be differentiated or batched any more: rules that users gave are dropped,
    and OPTIMIZATIONS follow.
    """
    key = ("simplified", final)
    small = jaxpr.once(key, lambda: _simplified(jaxpr, final))
    return small.once(key, lambda: small)  # which needs no more of it


@made_once
def without_rules(jaxpr: Jaxpr) -> Jaxpr:
    """An equivalent jaxpr in which functions that users gave rules are replaced with what they do."""
    return ValueNumbering(True, without_rules).run(jaxpr)


def _simplified(jaxpr: Jaxpr, final: bool) -> Jaxpr:
    small = jaxpr
    for _ in range(policy.SIMPLIFICATIONS):
        before = len(small.eqns)
        small = _numbered(small, final)
        if len(small.eqns) == before or not any(jaxpr_fields(type(e.prim)) for e in small.eqns):
            break
    for optimize in OPTIMIZATIONS if final else ():
        small = optimize(small)
    return small


def _numbered(jaxpr: Jaxpr, final: bool) -> Jaxpr:
    return _live(ValueNumbering(final, lambda j: simplify(j, final)).run(jaxpr))


def _live(jaxpr: Jaxpr) -> Jaxpr:
    return dce(jaxpr, [True] * len(jaxpr.outs))


def _without_transposes(jaxpr: Jaxpr) -> Jaxpr:
    turned = in_order_of_products(jaxpr)
    return jaxpr if turned is jaxpr else _numbered(turned, True)


def _with_whole_sums(jaxpr: Jaxpr) -> Jaxpr:
    summed = in_pieces(whole_sums(cut_sums(jaxpr)))
    return jaxpr if summed is jaxpr else _numbered(summed, True)


OPTIMIZATIONS: tuple[Callable[[Jaxpr], Jaxpr], ...] = (
    factored_choices,
    _without_transposes,
    without_transposed_products,
    sums_in_products,
    accumulate,
    without_known_stacks,
    without_shifted_stacks,
    transposed_columns,
    repeated_inside,
    _live,
    _with_whole_sums,
    handed_on,
)
