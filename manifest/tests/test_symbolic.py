"""The same expression over PyTorch's symbolic sizes: the same answer, and no guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tileops.manifest.expressions import Expression

torch = pytest.importorskip("torch", reason="needs torch, which the manifest itself does not")

from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv  # noqa: E402

Sizes = dict[str, Any]
HINTS = {"n": 12, "m": 5}


@pytest.fixture
def sizes() -> tuple[Sizes, ShapeEnv]:
    """Two symbolic sizes, and the environment that records every guard on them."""
    from torch._dynamo.source import ConstantSource

    env = ShapeEnv()
    made = {
        name: env.create_symintnode(
            env.create_symbol(hint, ConstantSource(name), DimDynamic.DYNAMIC, None),
            hint=hint,
            source=ConstantSource(name),
        )
        for name, hint in HINTS.items()
    }
    return made, env


CONDITIONS = [
    "n > m",
    "n % m == 0",
    "0 < m < n",
    "0 < m < n <= 100",
    "n > m and m > 1",
    "n > m or m > 1",
    "not n > m",
    "flag and n > m",
    "n > m and flag",
    "none is None or n > none",
    "n in (11, 12)",
    "n not in (11, 12)",
    "prod(shape) == 60",
    "min(n, m, 7) == 5",
    "max(3, n) == 12",
    "ceil_div(n, m) == 3",
    "(n > m) == True",
    "(n > m) != (m > n)",
    "(n > 3 if flag else m > 3) and n > 2",
    "(n > 4) if (m > 3) else (n > 5)",
]
NUMBERS = ["n * m + 1", "n // m", "-n % m", "min(n, m)", "n if n > m else m", "abs(m - n)"]


def values(sizes: Sizes) -> Sizes:
    return {**sizes, "flag": True, "none": None, "shape": (sizes["n"], sizes["m"])}


@pytest.mark.parametrize("source", CONDITIONS)
def test_a_condition_stays_symbolic_and_is_right(
    source: str, sizes: tuple[Sizes, ShapeEnv]
) -> None:
    """Asking a symbolic condition for its truth would specialise the graph that is traced."""
    made, env = sizes
    expression = Expression(source)
    result = expression.evaluate(values(made))
    assert env.guards == []
    assert bool(result) == expression.evaluate(values(HINTS))


@pytest.mark.parametrize("source", NUMBERS)
def test_a_number_stays_symbolic_and_is_right(source: str, sizes: tuple[Sizes, ShapeEnv]) -> None:
    made, env = sizes
    expression = Expression(source)
    result = expression.evaluate(values(made))
    assert env.guards == []
    assert int(result) == expression.evaluate(values(HINTS))


@pytest.mark.parametrize(
    ("source", "expected"),
    [("flag or n > m", True), ("none is not None and n > none", False)],
)
def test_a_plain_side_decides_without_the_symbol(
    source: str, expected: bool, sizes: tuple[Sizes, ShapeEnv]
) -> None:
    made, env = sizes
    assert Expression(source).evaluate(values(made)) is expected
    assert env.guards == []


def test_unbacked_sizes_become_checks() -> None:
    """A rule over a size that only the data decides is stated, where a guard could not be."""
    rule = Expression("n > 0 and n % 2 == 0 or n == 7")
    seen: list[object] = []

    def trace(x: torch.Tensor) -> torch.Tensor:
        n = x.nonzero().shape[0]
        result = rule.evaluate({"n": n})
        seen.append(result)
        torch._check(result, lambda: "an even number")
        return x + n

    _make_fx(trace)(torch.tensor([1, 1, 0, 0]))
    [result] = seen
    assert isinstance(result, torch.SymBool)
    [asserted] = result.node.shape_env.deferred_runtime_asserts.values()
    assert len(asserted) == 1


def _make_fx(function: Callable[..., Any]) -> Callable[..., Any]:
    from torch.fx.experimental.proxy_tensor import make_fx

    made: Callable[..., Any] = make_fx(function, tracing_mode="symbolic")
    return made
