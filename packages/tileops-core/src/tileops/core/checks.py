"""What the generated checks call: comparisons that serve ints and SymInts, and error texts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tileops.core.dtypes import dtype_name
from tileops.core.errors import ArgumentError

__all__ = [
    "bad_device",
    "bad_dtype",
    "bad_layout",
    "bad_rank",
    "bad_shape",
    "check_int",
    "combine",
    "match",
    "match_out",
    "missing",
    "no_out",
    "not_a_tensor",
    "require",
    "say",
]


def require(condition: Any, message: Callable[[], str]) -> None:
    """Raises unless ``condition`` holds; a symbolic one becomes a check of the compiled graph.

    What depends on sizes that only the run of the graph gives (unbacked ones) is left to the
    node, which checks its real tensors: a check of the graph would come before the node and lose
    the message, since what compilers make of it says ``Eq(Mod(u0, 2), 0)`` and no more.

    Raises:
        ArgumentError: a plain condition does not hold.
    """
    if condition is True:
        return
    if isinstance(condition, torch.SymBool):
        if not _left_to_the_run(condition):
            torch._check(condition, message)
    elif not condition:
        raise ArgumentError(message())


def _left_to_the_run(condition: torch.SymBool) -> bool:
    # Imported here: it loads sympy, and only a compiler has symbolic sizes.
    from torch.fx.experimental import symbolic_shapes

    return symbolic_shapes.has_free_unbacked_symbols(condition) and not (
        symbolic_shapes.statically_known_true(torch.sym_not(condition))
    )


def say(op: str, message: str, values: Mapping[str, Any]) -> str:
    """A rule's message with the call's own values in it."""
    return f"{op}: {message.format_map({name: _show_value(v) for name, v in values.items()})}"


def match(op: str, name: str, shape: Sequence[Any], spelling: str, wanted: Sequence[Any]) -> None:
    """Requires that ``shape`` be ``wanted``, axis by axis; both have the same number of axes.

    Raises:
        ArgumentError: an axis differs.
    """
    # Dynamo, which traces the checks of a composite, makes a node of `is not` between symbols.
    traced = torch.compiler.is_dynamo_compiling()
    for actual, needed in zip(shape, wanted, strict=True):
        if traced or actual is not needed:
            require(actual == needed, lambda: str(bad_shape(op, name, shape, spelling, wanted)))


def combine(
    op: str,
    found: Mapping[str, torch.dtype | None],
    combinations: Sequence[Mapping[str, torch.dtype]],
    arguments: Sequence[tuple[str, str, torch.Tensor | None]],
) -> None:
    """Requires that the dtype variables together be one of the entry's combinations.

    A variable that no argument bound matches anything. ``arguments`` has the variable and the name
    of each tensor whose dtype is one.

    Raises:
        ArgumentError: no combination holds the dtypes found.
    """
    bound = {name: dtype for name, dtype in found.items() if dtype is not None}
    for allowed in combinations:
        if all(allowed.get(name, dtype) == dtype for name, dtype in bound.items()):
            return
    listing = "; ".join(
        dict.fromkeys(
            ", ".join(f"{name} = {dtype_name(c[name])}" for name in bound if name in c)
            for c in combinations
        )
    )
    came = []
    for name, dtype in bound.items():
        holders = [each for held, each, tensor in arguments if held == name and tensor is not None]
        came.append(f"{name} = {dtype_name(dtype)} ({', '.join(holders)})")
    raise ArgumentError(
        f"{op}: the call has {', '.join(came)}, but the signature needs one of: {listing}; "
        f"convert one of them"
    )


def match_out(
    op: str, out: torch.Tensor, spelling: str, shape: Sequence[Any], dtype: Any, device: Any
) -> None:
    """Requires that ``out`` have exactly the shape, dtype and device of the output it fills.

    Raises:
        ArgumentError: it has not; ``out`` is never resized.
    """
    if out.layout is not torch.strided:
        raise bad_layout(op, "out", out)
    if out.dtype != dtype:
        raise bad_dtype(op, "out", out.dtype, "the output's", (dtype,))
    if out.device != device:
        raise bad_device(op, "out", out, device)
    if len(out.shape) != len(shape):
        raise bad_shape(op, "out", out.shape, spelling, shape)
    match(op, "out", out.shape, spelling, shape)


def check_int(op: str, name: str, value: Any) -> None:
    """Requires that ``value`` be an int that an operator can be given, or stand for one.

    Raises:
        ArgumentError: it is something else, also where it could be made an int.
    """
    if isinstance(value, torch.SymInt):
        return
    # torch.jit.trace has tensors for the sizes of its tensors.
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if tracing and isinstance(value, torch.Tensor):
        return
    if isinstance(value, bool) or not isinstance(value, int):
        came = "None" if value is None else f"of type {type(value).__name__}"
        raise ArgumentError(f"{op}: {name} is {came}, but the signature needs an int")
    if not torch.compiler.is_compiling() and not -(2**63) <= value < 2**63:
        raise ArgumentError(f"{op}: {name} is {value}, but the signature needs an int of 64 bits")


def not_a_tensor(op: str, name: str, value: Any, optional: bool) -> ArgumentError:
    needs = "a Tensor or None" if optional else "a Tensor"
    came = "None" if value is None else f"of type {type(value).__name__}"
    return ArgumentError(f"{op}: {name} is {came}, but the signature needs {needs}")


def missing(op: str, name: str, condition: str) -> ArgumentError:
    refused = condition.removeprefix("not ")
    plain = refused != condition and refused.isidentifier()
    where = f"where {refused}" if plain else f"except where {condition}"
    return ArgumentError(f"{op}: {name} is None, but the signature needs a Tensor {where}")


def no_out(op: str, output: str, condition: str) -> ArgumentError:
    return ArgumentError(
        f"{op}: out is given, but the call has no {output} to fill it with: the signature has one "
        f"only where {condition}"
    )


def bad_layout(op: str, name: str, tensor: torch.Tensor) -> ArgumentError:
    if tensor.is_nested:
        return ArgumentError(
            f"{op}: {name} is a nested tensor, but the signature needs a plain one; pad it, for "
            f"example with torch.nested.to_padded_tensor({name}, 0.0)"
        )
    return ArgumentError(
        f"{op}: {name} has the layout {tensor.layout}, but the signature needs torch.strided; "
        f"convert it, for example with {name}.to_dense()"
    )


def bad_dtype(
    op: str, name: str, dtype: torch.dtype, variable: str, allowed: Sequence[torch.dtype]
) -> ArgumentError:
    needs = _alternatives([dtype_name(item) for item in allowed])
    prefix = "" if variable == needs else f"{variable} = "
    return ArgumentError(
        f"{op}: {name} has dtype {dtype_name(dtype)}, but the signature needs {prefix}{needs}"
    )


def bad_device(op: str, name: str, tensor: torch.Tensor, device: torch.device) -> ArgumentError:
    return ArgumentError(
        f"{op}: {name} is on {tensor.device}, but the call's first tensor is on {device}; move one "
        f"of them"
    )


def bad_rank(op: str, name: str, shape: Sequence[Any], spelling: str) -> ArgumentError:
    return ArgumentError(
        f"{op}: {name} has shape {_show(shape)}, but the signature needs {spelling}"
    )


def bad_shape(
    op: str, name: str, shape: Sequence[Any], spelling: str, wanted: Sequence[Any]
) -> ArgumentError:
    sizes = _show(wanted)
    # Behind what this tensor's number of axes asks for, what else would do.
    needs, _, others = spelling.partition(", or ")
    # Of axes that no tensor has given a size yet, the names are all there is.
    needs += f" = {sizes}" if sizes != needs else ""
    needs += f", or {others}" if others else ""
    return ArgumentError(f"{op}: {name} has shape {_show(shape)}, but the signature needs {needs}")


def _show_value(value: Any) -> str:
    """A param's numbers as their Python spells them, also where it is built; axes as shapes."""
    if type(value) is tuple:
        inner = ", ".join(map(_show, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return _show(value)


def _show(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_show, value))}]"
    if torch.compiler.is_dynamo_compiling() and isinstance(value, int):
        # Dynamo has no text for a symbol; the call fails, so that its number may be settled.
        return str(operator.index(value))
    if isinstance(value, torch.SymInt) and value.node.has_hint():
        # The size that the traced call has, which says more to its author than the symbol.
        return str(value.node.hint)
    return dtype_name(value) if isinstance(value, torch.dtype) else str(value)


def _alternatives(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} or {items[-1]}"
