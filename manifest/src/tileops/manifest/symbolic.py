"""What expressions compile to: operations that answer the same for ints and for symbolic ints.

A plain operand takes Python's own way, short-circuit included. A symbolic one (a ``SymBool`` or
``SymInt``, known by the methods that PyTorch's ``torch.sym_*`` functions look for, so that this
module needs no torch) is combined without being asked for its truth: asking would install a guard
and specialise the graph that is being traced.

Division is total, so that a rule over sizes cannot die of a zero: ``x // 0`` is 0, ``x % 0`` is
``x`` and ``x / 0`` is 0.0. So ``a % b == 0`` says "b divides a" for every ``b``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from tileops.manifest.work import ROOFLINE_HELPERS

__all__ = ["HELPERS"]


def _is_symbolic_bool(value: Any) -> bool:
    return hasattr(value, "__sym_not__")


def _and(left: Any, right: Callable[[], Any]) -> Any:
    if not _is_symbolic_bool(left):
        return right() if left else False
    other = right()
    if _is_symbolic_bool(other):
        return left & other
    return left if other else False


def _or(left: Any, right: Callable[[], Any]) -> Any:
    if not _is_symbolic_bool(left):
        return True if left else right()
    other = right()
    if _is_symbolic_bool(other):
        return left | other
    return True if other else left


def _not(value: Any) -> Any:
    return value.__sym_not__() if _is_symbolic_bool(value) else not value


def _if(condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    if not _is_symbolic_bool(condition):
        return then() if condition else otherwise()
    yes, no = then(), otherwise()
    if isinstance(yes, bool) or isinstance(no, bool) or _is_symbolic_bool(yes):
        return _or(_and(condition, lambda: yes), lambda: _and(_not(condition), lambda: no))
    if type(yes) is type(no) and hasattr(yes, "node"):
        return condition.__sym_ite__(yes, no)
    # Numbers of which one at least is plain: PyTorch's sym_ite takes only symbols of one type.
    return yes if condition else no


def _in(value: Any, members: Sequence[Any]) -> Any:
    result: Any = False
    for member in members:
        result = _or(result, functools.partial(operator.eq, value, member))
    return result


def _same(left: Any, right: Any) -> Any:
    """Compare two bools: PyTorch's symbolic ones do not compare themselves."""
    if not _is_symbolic_bool(left) and not _is_symbolic_bool(right):
        return left == right
    both = _and(left, lambda: right)
    return _or(both, lambda: _and(_not(left), lambda: _not(right)))


def _pick(method: str, plain: Callable[[Any, Any], Any], values: tuple[Any, ...]) -> Any:
    result = values[0]
    for value in values[1:]:
        if hasattr(result, method):
            result = getattr(result, method)(value)
        elif hasattr(value, method):
            result = getattr(value, method)(result)
        else:
            result = plain(result, value)
    return result


def _min(*values: Any) -> Any:
    return _pick("__sym_min__", min, values)


def _max(*values: Any) -> Any:
    return _pick("__sym_max__", max, values)


def _prod(values: Iterable[Any]) -> Any:
    result: Any = 1
    for value in values:
        result = result * value
    return result


def _is_zero(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == 0


def _floordiv(left: Any, right: Any) -> Any:
    return 0 if _is_zero(right) else left // right


def _mod(left: Any, right: Any) -> Any:
    return left if _is_zero(right) else left % right


def _truediv(left: Any, right: Any) -> Any:
    return 0.0 if _is_zero(right) else left / right


def _ceil_div(left: Any, right: Any) -> Any:
    return -_floordiv(-left, right)


HELPERS: Final[Mapping[str, object]] = {
    "_and": _and,
    "_or": _or,
    "_not": _not,
    "_if": _if,
    "_in": _in,
    "_same": _same,
    "_min": _min,
    "_max": _max,
    "_abs": abs,
    "_prod": _prod,
    "_len": len,
    "_sum": sum,
    "_floordiv": _floordiv,
    "_mod": _mod,
    "_truediv": _truediv,
    "_ceil_div": _ceil_div,
    **ROOFLINE_HELPERS,
}
"""The globals that the Python of ``Expression.to_python`` needs."""
